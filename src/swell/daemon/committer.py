"""State and log together: the one way to make an event true.

`commit` applies events to the state at once and returns when they are on disk; nothing leaves the daemon (no answer, no
effect) before that. When the disk says no, memory falls back to what the disk has, and commits are refused with the
reason until a write works again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from swell.core.errors import InvalidTransition, StoreError, SwellError
from swell.core.events import Event
from swell.core.lifecycle import apply
from swell.core.state import State
from swell.ports import SpeedBook, Store, Stored
from swell.store.journal import Journal

log = logging.getLogger(__name__)

RECENT = 4096
"""So many of the last events are kept in memory for readers that follow; others read the store."""
RETRY_S = 1.0
BOOK_EVENTS = 10_000
"""At a start the speed book learns from so many of the last events."""
CHECKPOINT_EVERY = 20_000


class Committer:
    def __init__(self, store: Store, journal: Journal, book: SpeedBook) -> None:
        self._store = store
        self._journal = journal
        self._book = book
        self._recent: deque[Stored] = deque(maxlen=RECENT)
        self._news = asyncio.Condition()
        self._checkpointing: asyncio.Task[None] | None = None
        self._checkpoint_seq = 0
        self.listeners: list[Callable[[Sequence[Event]], None]] = []  # told of events once they are durable
        self.state = State()
        self.durable_seq = 0
        self.failure: StoreError | None = None

    async def open(self) -> None:
        """Load the state, and teach the book what the log still says of epochs."""
        self.state = await self._journal.recover()
        self.durable_seq = self.state.seq
        after = max(0, self.state.seq - BOOK_EVENTS)
        for stored in await asyncio.to_thread(self._store.events, after):
            self._book.learn(stored.event)

    async def commit(self, events: Sequence[Event]) -> None:
        """Make these events true and durable, all or none. Raises InvalidTransition or StoreError."""
        if not events:
            return
        if self.failure is not None:
            raise self.failure
        try:
            for event in events:
                apply(self.state, event)
                # With the state, not after the disk: a decision in between sees both or neither. What a refused write
                # leaves in the book is one measurement too many.
                self._book.learn(event)
                self._recent.append(Stored(seq=self.state.seq, event=event))
        except InvalidTransition as error:
            # The events before it are in memory but will not be on disk: go back to what the disk has.
            await self._fall_back(StoreError(f"a decision was inconsistent and was dropped: {error}"))
            raise
        last = self.state.seq
        try:
            await self._journal.append(events)
        except SwellError as error:
            await self._fall_back(error if isinstance(error, StoreError) else StoreError(str(error)))
            raise
        for told in self.listeners:
            told(events)
        await self._publish(last)
        self._checkpoint_if_due()

    async def _publish(self, seq: int) -> None:
        async with self._news:
            self.durable_seq = max(self.durable_seq, seq)
            self._news.notify_all()

    async def wait_durable(self, seq: int) -> None:
        """Return when the event numbered `seq` is on disk; raise if it will not be."""
        async with self._news:
            await self._news.wait_for(lambda: self.durable_seq >= seq or self.failure is not None)
        if self.durable_seq < seq and self.failure is not None:
            raise self.failure

    async def _fall_back(self, error: StoreError) -> None:
        if self.failure is not None:
            return
        self.failure = error
        log.error("the store refused a write, nothing was lost: %s", error)
        self.state = await self._journal.recover()
        self._recent.clear()
        async with self._news:
            self._news.notify_all()
        asyncio.get_running_loop().call_later(RETRY_S, self._try_again)

    def _try_again(self) -> None:
        self.failure = None

    def _checkpoint_if_due(self) -> None:
        busy = self._checkpointing is not None and not self._checkpointing.done()
        if busy or self.durable_seq - self._checkpoint_seq < CHECKPOINT_EVERY:
            return
        self._checkpoint_seq = self.durable_seq
        self._checkpointing = asyncio.create_task(self._checkpoint())

    async def _checkpoint(self) -> None:
        try:
            await self._journal.checkpoint(self.state)
        except StoreError as error:
            log.warning("no checkpoint of the state was kept; the next start replays more: %s", error)

    async def follow(self, after_seq: int) -> AsyncIterator[Stored]:
        """Every durable event numbered above `after_seq`, then those to come."""
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
        return await asyncio.to_thread(self._store.events, after_seq, 1000)

    async def close(self) -> None:
        if self._checkpointing is not None:
            await self._checkpointing
        if self.failure is None and self.durable_seq > self._checkpoint_seq:
            await self._checkpoint()
        await self._journal.close()
