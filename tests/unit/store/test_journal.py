"""Group commit: who waits is answered after its batch is durable, in order, and never when it is not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence

import pytest

from lives import submitted
from swell.core.errors import StoreError, StoreFull
from swell.core.events import Event
from swell.core.lifecycle import replay
from swell.store.journal import Journal
from swell.store.memory import MemoryStore


class GatedStore(MemoryStore):
    """A store whose disk waits to be told, and breaks when told."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Semaphore(0)
        self.batches: list[int] = []
        self.error: Exception | None = None

    def append(self, first_seq: int, events: Sequence[Event]) -> None:
        assert self.gate.acquire(timeout=10)
        if self.error is not None:
            raise self.error
        super().append(first_seq, events)
        self.batches.append(len(events))


def with_journal(scenario: Callable[[GatedStore, Journal], Awaitable[None]], **options: int) -> None:
    async def main() -> None:
        store = GatedStore()
        journal = Journal(store, **options)
        await journal.recover()
        try:
            await scenario(store, journal)
        finally:
            store.gate.release(1000)
            await journal.close()

    asyncio.run(main())


def test_what_gathers_during_a_commit_is_one_batch_numbered_in_order_of_the_calls() -> None:
    async def scenario(store: GatedStore, journal: Journal) -> None:
        waiting = [journal.append([submitted(job)]) for job in range(1, 2)]
        await asyncio.sleep(0)
        waiting += [journal.append([submitted(job)]) for job in range(2, 101)]
        store.gate.release(2)
        assert await asyncio.gather(*waiting) == list(range(1, 101))
        assert store.batches == [1, 99]
        assert journal.durable_seq == 100

    with_journal(scenario)


def test_a_batch_is_bounded_but_one_append_is_never_split() -> None:
    async def scenario(store: GatedStore, journal: Journal) -> None:
        store.gate.release(10)
        waiting = [journal.append([submitted(job), submitted(job + 1)]) for job in (1, 3, 5)]
        waiting.append(journal.append([submitted(job) for job in range(7, 15)]))
        await asyncio.gather(*waiting)
        assert store.batches == [4, 2, 8]

    with_journal(scenario, max_batch=5)


def test_never_answered_before_it_is_durable() -> None:
    async def scenario(store: GatedStore, journal: Journal) -> None:
        answer = journal.append([submitted(1)])
        await asyncio.wait({answer}, timeout=0.05)
        assert not answer.done()
        assert journal.durable_seq == 0
        store.gate.release()
        assert await answer == 1
        assert [one.event for one in store.events()] == [submitted(1)]

    with_journal(scenario)


def test_a_failed_batch_fails_those_behind_it_and_everything_until_recover() -> None:
    async def scenario(store: GatedStore, journal: Journal) -> None:
        store.gate.release()
        await journal.append([submitted(1)])
        store.error = StoreFull("no space")
        first = journal.append([submitted(2)])
        await asyncio.sleep(0)
        second = journal.append([submitted(3)])
        store.gate.release()
        answers = await asyncio.gather(first, second, journal.append([submitted(4)]), return_exceptions=True)
        assert list(answers) == [store.error] * 3
        failed = journal.failed
        assert failed is store.error
        with pytest.raises(StoreFull):
            await journal.append([submitted(2)])
        store.error = None
        state = await journal.recover()
        assert state == replay([submitted(1)])
        assert journal.failed is None
        store.gate.release()
        assert await journal.append([submitted(2)]) == 2

    with_journal(scenario)


def test_an_error_that_is_not_the_stores_own_stops_the_journal_too() -> None:
    async def scenario(store: GatedStore, journal: Journal) -> None:
        store.error = RuntimeError("a fault of ours")
        store.gate.release()
        with pytest.raises(StoreError, match="a fault of ours"):
            await journal.append([submitted(1)])
        assert journal.failed is not None

    with_journal(scenario)


def test_a_caller_that_stops_waiting_takes_nothing_back() -> None:
    async def scenario(store: GatedStore, journal: Journal) -> None:
        gone, stays = journal.append([submitted(1)]), journal.append([submitted(2)])
        gone.cancel()
        store.gate.release(2)
        assert await stays == 2
        assert len(store.events()) == 2

    with_journal(scenario)


def test_a_checkpoint_waits_until_its_events_are_durable() -> None:
    async def scenario(store: GatedStore, journal: Journal) -> None:
        answer = journal.append([submitted(1)])
        kept = asyncio.ensure_future(journal.checkpoint(replay([submitted(1)])))
        await asyncio.wait({kept}, timeout=0.05)
        assert not kept.done()
        store.gate.release()
        await kept
        assert answer.done()
        store.error = StoreFull("no space")
        lost = journal.append([submitted(2)])
        kept = asyncio.ensure_future(journal.checkpoint(replay([submitted(1), submitted(2)])))
        store.gate.release()
        with pytest.raises(StoreFull):
            await kept
        assert isinstance(lost.exception(), StoreFull)

    with_journal(scenario)


def test_close_writes_what_is_queued_and_then_refuses() -> None:
    async def main() -> None:
        store = GatedStore()
        store.gate.release(10)
        journal = Journal(store)
        with pytest.raises(StoreError, match="not open yet"):
            await journal.append([submitted(1)])
        await journal.recover()
        assert await journal.append([]) == 1
        answer = journal.append([submitted(1)])
        await journal.close()
        assert await answer == 1
        with pytest.raises(StoreError, match="closed"):
            await journal.append([submitted(2)])

    asyncio.run(main())
