"""Keeps state and log together: events become facts only by `Committer.commit`.

`commit` applies events to the state at once and returns when they are on disk; nothing leaves the daemon (no answer, no
effect) before that. When the store refuses a write, commits are refused with the reason until `keep_healthy`, a task of
the daemon, has made a write work again and has read back what the store holds, however long that takes. Until then
`state` may hold events that are not on disk: code that decides from it calls `check` first, or waits in `healthy`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from swell.core.errors import InvalidTransition, NotFound, StoreDamaged, StoreError, StoreFenced, SwellError
from swell.core.events import Event, SpeedsFitted
from swell.core.lifecycle import apply
from swell.core.state import State
from swell.ports import LastingBook, Store, Stored
from swell.store.journal import Journal

log = logging.getLogger(__name__)

RECENT = 4096
"""Number of last events kept in memory for readers that follow; others read the store."""
FIRST_RETRY_S = 0.25
MAX_RETRY_S = 5.0
"""Delay before the store is tried again: it begins with the first and doubles up to the second."""
BOOK_PAGE = 5_000
"""Events per page while the speed book is read back."""
CHECKPOINT_EVERY = 20_000


class Committer:
    def __init__(self, store: Store, journal: Journal, book: LastingBook) -> None:
        self.cluster_id = store.cluster_id
        self._store = store
        self._journal = journal
        self._book = book
        self._recent: deque[Stored] = deque(maxlen=RECENT)
        self._news = asyncio.Condition()
        self._broken = asyncio.Event()
        self._checkpoint_due = asyncio.Event()
        self._checkpoint_seq = 0
        self._closed = False
        self.listeners: list[Callable[[Sequence[Event]], None]] = []  # called with events once they are durable
        self.found: list[Callable[[Sequence[Event]], None]] = []  # called with refused events that are on disk
        self.state = State()
        self.durable_seq = 0
        self.failure: StoreError | None = None  # why nothing can be written or decided now

    async def open(self) -> None:
        """Load the state and the speed book that belongs to it."""
        self.state = await self._journal.recover()
        self.durable_seq = self.state.seq
        await self._read_book_back()

    async def _read_book_back(self) -> None:
        """Restores the speed book of the last checkpoint and replays later events; without one, the whole log."""
        seq, kept = await asyncio.to_thread(self._store.book)
        after = seq if self._book.restore(kept) else 0
        while page := await asyncio.to_thread(self._store.events, after, BOOK_PAGE):
            for stored in page:
                self._book.learn(stored.event)
            after = page[-1].seq

    @property
    def first_seq(self) -> int:
        """The number of the first event that `follow` can return."""
        return self._store.first_seq

    @property
    def silent_s(self) -> float:
        """How long a write has waited for the store; 0: no write waits."""
        return self._journal.silent_s

    async def commit(self, events: Sequence[Event]) -> None:
        """Apply these events and make them durable, all or none. Raises InvalidTransition or StoreError."""
        if not events:
            return
        self.check()
        try:
            for event in events:
                apply(self.state, event)
                # Together with the state, before the write: a decision in between sees both or neither. If the write is
                # refused, reading the book back removes what it learned here.
                self._book.learn(event)
                self._recent.append(Stored(seq=self.state.seq, event=event))
        except InvalidTransition as error:
            # The events before it are applied but will not be written: fall back to what the store has.
            self._fall_back(StoreError(f"a decision was inconsistent and was dropped: {error}"))
            raise
        last = self.state.seq
        try:
            await self._journal.append(events)
        except SwellError as error:
            self._fall_back(error if isinstance(error, StoreError) else StoreError(str(error)))
            raise
        for listener in self.listeners:
            listener(events)
        await self._publish(last)
        self._checkpoint_if_due()

    async def fit_speeds(self, now_s: float) -> None:
        """Fits speeds for a decision, if anything was measured since the last fit. An event marks the place in the log:
        after a kill the book is fitted at the same places, so the next plan is the same."""
        if self._book.has_news:
            await self.commit([SpeedsFitted(at_s=now_s)])

    async def _publish(self, seq: int) -> None:
        async with self._news:
            self.durable_seq = max(self.durable_seq, seq)
            self._news.notify_all()

    async def wait_durable(self, seq: int) -> None:
        """Return when the event numbered `seq` is on disk; raise if it will not be."""
        async with self._news:
            await self._news.wait_for(lambda: self.durable_seq >= seq or self.failure is not None)
        if self.durable_seq < seq:
            self.check()

    def check(self) -> None:
        """Raise if nothing can be written or decided now."""
        if self.failure is not None:
            raise type(self.failure)(*self.failure.args)  # a copy: the traceback of one object grows with each raise

    async def healthy(self) -> None:
        """Returns once state and store agree. Raises if they never will: the daemon is fenced off or closing."""
        async with self._news:
            await self._news.wait_for(lambda: self.failure is None or self._closed or self._fenced)
        self.check()

    @property
    def _fenced(self) -> bool:
        return isinstance(self.failure, StoreFenced)

    def doubt(self, error: StoreError) -> None:
        """Called when not a write but another check found that the store fails, or may belong to another daemon by now:
        nothing is written or decided until a write has worked."""
        self._fall_back(error)

    def _fall_back(self, error: StoreError) -> None:
        if self.failure is None:
            self.failure = error
            log.error("the store does not work, nothing that was acknowledged is lost: %s", error)
            self._broken.set()

    async def keep_healthy(self) -> None:
        """Until cancelled: after a refused write, try the store again until it works. Raises StoreFenced."""
        while True:
            await self._broken.wait()
            await self._heal()
            self._broken.clear()
            async with self._news:
                self.failure = None
                self._news.notify_all()
            log.info("the store works again; the log goes on after event %d", self.durable_seq)

    async def _heal(self) -> None:
        retry_s = FIRST_RETRY_S
        while True:
            try:
                await self._read_back()
            except Exception as error:
                self._still_broken(error)
            else:
                return
            async with self._news:
                self._news.notify_all()
            await asyncio.sleep(retry_s)
            retry_s = min(MAX_RETRY_S, 2.0 * retry_s)

    def _still_broken(self, error: Exception) -> None:
        failure = error if isinstance(error, StoreError) else StoreError(f"the store failed: {error!r}")
        if str(failure) != str(self.failure):
            log.error("the store does not work yet: %s", failure)
        self.failure = failure
        if isinstance(error, StoreFenced):
            raise error

    async def _read_back(self) -> None:
        """Take over what the store holds. It may include a write whose answer was lost."""
        await self._journal.prove_writable()  # first: it is cheap, reading everything back is not
        state = await self._journal.recover()
        if state.seq < self.durable_seq:
            raise StoreDamaged(
                f"the log ends at event {state.seq}, but events up to {self.durable_seq} were acknowledged: an older "
                "copy of the database was put in its place. Bring the newer one back; it is tried again."
            )
        found = [stored.event for stored in await asyncio.to_thread(self._store.events, self.durable_seq)]
        await self._read_book_back()
        self.state = state
        self._recent.clear()
        self.durable_seq = state.seq
        for listener in (*self.listeners, *self.found) if found else ():
            listener(found)

    def _checkpoint_if_due(self) -> None:
        if self.durable_seq - self._checkpoint_seq >= CHECKPOINT_EVERY:
            self._checkpoint_due.set()

    async def keep_checkpoints(self) -> None:
        """Until cancelled: write a checkpoint after every `CHECKPOINT_EVERY` events."""
        while True:
            await self._checkpoint_due.wait()
            self._checkpoint_due.clear()
            await self._checkpoint()

    async def _checkpoint(self) -> None:
        self._checkpoint_seq = self.durable_seq
        try:
            await self._journal.checkpoint(self.state, self._book.keep())
        except StoreError as error:
            log.warning("no checkpoint of the state was kept; the next start replays more: %s", error)

    async def follow(self, after_seq: int) -> AsyncIterator[Stored]:
        """Every durable event with a number above `after_seq`, then new ones as they come."""
        while True:
            for stored in await self._read(after_seq):
                after_seq = stored.seq
                yield stored
            async with self._news:
                while self.durable_seq <= after_seq:
                    await self._news.wait()

    async def _read(self, after_seq: int) -> Sequence[Stored]:
        if self._recent and self._recent[0].seq <= after_seq + 1:
            return [s for s in self._recent if after_seq < s.seq <= self.durable_seq]
        if after_seq >= self.durable_seq:
            return ()
        found = await asyncio.to_thread(self._store.events, after_seq, 1000)
        if found and found[0].seq != after_seq + 1:
            raise NotFound(f"events {after_seq + 1} to {found[0].seq - 1} were removed from the log in between")
        return found

    async def stop_waiting(self) -> None:
        """From now on `healthy` raises while the store does not work, instead of keeping the daemon from ending."""
        async with self._news:
            self._closed = True
            self._news.notify_all()

    async def close(self) -> None:
        """Refuse further commits, write a last checkpoint and close the journal. Stop `keep_healthy` and
        `keep_checkpoints` first."""
        if self.failure is None and self.durable_seq > self._checkpoint_seq:
            await self._checkpoint()
        self.failure = self.failure or StoreError("the daemon is stopping; send it again when it is back")
        await self.stop_waiting()
        await self._journal.close()
