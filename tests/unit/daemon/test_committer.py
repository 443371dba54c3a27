"""The committer through outages of its store: refused while it lasts, nothing lost, and it ends by itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import pytest

from lives import planned, submitted
from swell.core.errors import InvalidTransition, StoreError, StoreFenced, StoreFull
from swell.core.events import Event
from swell.core.state import State
from swell.daemon import committer as module
from swell.daemon.committer import Committer
from swell.speed.book import Book
from swell.store.journal import Journal
from swell.store.memory import MemoryStore


class BrokenStore(MemoryStore):
    """Works until it is broken, then refuses to write, or to write and read, until it is mended."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: StoreError | None = None
        self.unreadable = False
        self.answer_lost = False  # the next write happens, its answer does not come
        self.tries = 0

    def append(self, first_seq: int, events: Sequence[Event]) -> None:
        self._check()
        super().append(first_seq, events)
        if self.answer_lost:
            self.answer_lost = False
            raise StoreError("contact was lost")

    def prove_writable(self) -> None:
        self.tries += 1
        self._check()

    def load(self) -> State:
        if self.unreadable and self.refuses is not None:
            raise self.refuses
        return super().load()

    def _check(self) -> None:
        if self.refuses is not None:
            raise self.refuses


Scenario = Callable[[BrokenStore, Committer], Awaitable[None]]


def play(scenario: Scenario) -> None:
    async def main() -> None:
        store = BrokenStore()
        committer = Committer(store, Journal(store), Book())
        await committer.open()
        healing = asyncio.create_task(committer.keep_healthy())
        try:
            async with asyncio.timeout(10):
                await scenario(store, committer)
        finally:
            healing.cancel()
            with suppress(asyncio.CancelledError, StoreFenced):
                await healing
            await committer.close()

    asyncio.run(main())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(module, "MAX_RETRY_S", 0.004)


async def tried(store: BrokenStore, times: int) -> None:
    while store.tries < times:
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("unreadable", [False, True])
def test_an_outage_of_any_length_ends_by_itself_and_what_waited_is_written(unreadable: bool) -> None:
    async def scenario(store: BrokenStore, committer: Committer) -> None:
        await committer.commit([submitted(1)])
        store.refuses, store.unreadable = StoreFull("no space"), unreadable
        with pytest.raises(StoreFull):
            await committer.commit([submitted(2)])
        await tried(store, 20)
        failed = committer.failure
        assert isinstance(failed, StoreFull)
        with pytest.raises(StoreFull):
            await committer.commit([submitted(2)])
        waiting = asyncio.create_task(committer.healthy())
        await asyncio.sleep(0)
        assert not waiting.done()
        store.refuses = None
        await waiting
        assert committer.failure is None
        assert list(committer.state.jobs) == [1]
        await committer.commit([submitted(2)])
        assert [stored.seq for stored in store.events()] == [1, 2]

    play(scenario)


def test_never_healthy_while_the_store_can_be_read_and_not_written() -> None:
    async def scenario(store: BrokenStore, committer: Committer) -> None:
        store.refuses = StoreFull("no space")
        with pytest.raises(StoreFull):
            await committer.commit([submitted(1)])
        for _ in range(200):
            await asyncio.sleep(0)
            assert committer.failure is not None
            with pytest.raises(StoreFull):
                committer.check()

    play(scenario)


def test_a_write_whose_answer_was_lost_is_found_and_told_once() -> None:
    async def scenario(store: BrokenStore, committer: Committer) -> None:
        told: list[Event] = []
        found: list[Event] = []
        committer.listeners += [told.extend]
        committer.found += [found.extend]
        store.answer_lost = True
        with pytest.raises(StoreError, match="contact was lost"):
            await committer.commit([submitted(1)])
        await committer.healthy()
        assert committer.durable_seq == 1
        assert told == found == [submitted(1)]

    play(scenario)


def test_who_waits_for_an_event_to_be_durable_hears_that_it_will_not_be() -> None:
    async def scenario(store: BrokenStore, committer: Committer) -> None:
        store.refuses = StoreError("away")
        waiting = asyncio.create_task(committer.wait_durable(1))
        with pytest.raises(StoreError):
            await committer.commit([submitted(1)])
        with pytest.raises(StoreError, match="away"):
            await waiting

    play(scenario)


def test_an_inconsistent_decision_is_dropped_and_the_state_is_read_back() -> None:
    async def scenario(store: BrokenStore, committer: Committer) -> None:
        with pytest.raises(InvalidTransition):
            await committer.commit([submitted(1), planned(7)])
        await committer.healthy()
        assert committer.state == State()
        await committer.commit([submitted(1)])

    play(scenario)


def test_fenced_off_is_final() -> None:
    async def scenario(store: BrokenStore, committer: Committer) -> None:
        store.refuses = StoreFenced("taken over by another")
        with pytest.raises(StoreFenced):
            await committer.commit([submitted(1)])
        with pytest.raises(StoreFenced):
            await committer.healthy()
        store.refuses = None
        with pytest.raises(StoreFenced):
            await committer.commit([submitted(1)])

    play(scenario)


def test_a_log_shorter_than_what_was_acknowledged_is_never_gone_on_from() -> None:
    async def scenario(store: BrokenStore, committer: Committer) -> None:
        await committer.commit([submitted(1)])
        whole = store.load

        store.refuses = StoreError("away")
        with pytest.raises(StoreError):
            await committer.commit([submitted(2)])
        store.load = State  # type: ignore[method-assign]  # an older copy is there when it comes back
        store.refuses = None
        await tried(store, store.tries + 5)
        assert "acknowledged" in str(committer.failure)
        store.load = whole  # type: ignore[method-assign]
        await committer.healthy()
        assert list(committer.state.jobs) == [1]

    play(scenario)


def test_following_from_the_last_event_of_a_log_that_was_just_opened_waits_for_the_next() -> None:
    async def main() -> None:
        store = BrokenStore()
        store.append(1, [submitted(1)])
        committer = Committer(store, Journal(store), Book())
        await committer.open()
        following = committer.follow(committer.durable_seq)
        coming = asyncio.ensure_future(anext(following))
        await asyncio.sleep(0)
        assert not coming.done()
        await committer.commit([submitted(2)])
        assert (await asyncio.wait_for(coming, 10)).seq == 2
        await committer.close()

    asyncio.run(main())


def test_a_write_that_is_not_answered_shows_for_how_long() -> None:
    """A disk or a server that hangs refuses nothing: without this the daemon would seem to be well."""
    hangs, goes_on = threading.Event(), threading.Event()

    async def scenario(store: BrokenStore, committer: Committer) -> None:
        def append(first_seq: int, events: Sequence[Event]) -> None:
            hangs.set()
            goes_on.wait(10)
            MemoryStore.append(store, first_seq, events)

        store.append = append  # type: ignore[method-assign]
        assert committer.silent_s == 0
        write = asyncio.create_task(committer.commit([submitted(1)]))
        await asyncio.to_thread(hangs.wait, 10)
        await asyncio.sleep(0.01)
        assert committer.silent_s > 0
        goes_on.set()
        await write
        assert committer.silent_s == 0

    play(scenario)
