"""Group commit for the daemon's loop: an answer leaves only after the batch that carries its events is on disk.

While one batch is being written, the next one gathers; so one caller waits for one commit, and a thousand callers at
once share a few. Events are numbered in the order of the calls. When a batch fails, all that wait fail with it: those
behind it were decided on the ground of events that do not exist. From then on the journal refuses, until `recover`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from swell.core.errors import StoreError, SwellError
from swell.core.events import Event
from swell.core.state import State, copy_of
from swell.ports import Store

MAX_BATCH = 2_000


@dataclass(frozen=True, slots=True)
class _Waiting:
    first_seq: int
    events: tuple[Event, ...]
    done: asyncio.Future[int]


class Journal:
    """Belongs to one running loop. `recover` first: it opens the journal, and opens it again after a failure."""

    def __init__(self, store: Store, *, max_batch: int = MAX_BATCH) -> None:
        self._store = store
        self._max_batch = max_batch
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._waiting: deque[_Waiting] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._latest: asyncio.Future[int] | None = None
        self._next_seq = 0
        self._durable_seq = 0
        self._writing_since_s: float | None = None
        self._failed: SwellError | None = StoreError("the journal is not open yet")

    @property
    def failed(self) -> SwellError | None:
        """Why nothing can be appended now; None when all is well."""
        return self._failed

    @property
    def durable_seq(self) -> int:
        return self._durable_seq

    @property
    def silent_s(self) -> float:
        """For how long the store has not answered the write that it is at; 0: it is at none."""
        since_s = self._writing_since_s
        return 0.0 if since_s is None else asyncio.get_running_loop().time() - since_s

    async def recover(self) -> State:
        """Reads the durable state back from the store. Callers replace their own state by this one."""
        self._failed = self._failed or StoreError("the store is being read again; try again in a moment")
        await self._drained()
        state = await asyncio.get_running_loop().run_in_executor(self._thread, self._store.load)
        self._next_seq, self._durable_seq, self._failed = state.seq + 1, state.seq, None
        return state

    async def prove_writable(self) -> None:
        """Raise if the store would refuse a write now."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._store.prove_writable)

    def append(self, events: Sequence[Event]) -> asyncio.Future[int]:
        """Queue the events, in the order of the calls. Awaited, it gives the number of the first one once all of them
        are durable, or raises. A caller that stops waiting does not take its events back."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if self._failed is not None:
            _fail(done, self._failed)
        elif not events:
            done.set_result(self._next_seq)
        else:
            self._waiting.append(_Waiting(self._next_seq, tuple(events), done))
            self._next_seq += len(events)
            self._latest = done
            if self._pump is None or self._pump.done():
                self._pump = asyncio.create_task(self._write_all())
        return done

    async def checkpoint(self, state: State, book: bytes = b"") -> None:
        """Keep a copy of the state as it is now, once all its events are durable. Other appends go on meanwhile."""
        copy = copy_of(state)
        if self._latest is not None:
            await asyncio.wait({self._latest})
        if self._failed is not None:
            raise self._failed
        await asyncio.to_thread(self._store.checkpoint, copy, book)

    async def close(self) -> None:
        """Write what is queued, then stop. The store stays open; who opened it closes it."""
        await self._drained()
        self._failed = StoreError("the journal is closed")
        self._thread.shutdown()

    async def _drained(self) -> None:
        if self._pump is not None:
            await asyncio.wait({self._pump})

    async def _write_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch = self._take()
            events = [event for one in batch for event in one.events]
            self._writing_since_s = loop.time()
            try:
                await loop.run_in_executor(self._thread, self._store.append, batch[0].first_seq, events)
            except Exception as error:
                self._give_up(batch, error)
                return
            finally:
                self._writing_since_s = None
            self._durable_seq = batch[0].first_seq + len(events) - 1
            for one in batch:
                if not one.done.done():
                    one.done.set_result(one.first_seq)

    def _take(self) -> list[_Waiting]:
        batch = [self._waiting.popleft()]
        size = len(batch[0].events)
        while self._waiting and size + len(self._waiting[0].events) <= self._max_batch:
            size += len(self._waiting[0].events)
            batch.append(self._waiting.popleft())
        return batch

    def _give_up(self, batch: Sequence[_Waiting], error: Exception) -> None:
        """An error that is not the store's own (a fault of ours) stops the journal like any other."""
        failure = error if isinstance(error, SwellError) else StoreError(f"the store failed: {error!r}")
        self._failed = failure
        for one in (*batch, *self._waiting):
            _fail(one.done, failure)
        self._waiting.clear()


def _fail(done: asyncio.Future[int], error: SwellError) -> None:
    if not done.done():
        done.set_exception(error)
        done.exception()  # seen: `failed` tells those who did not wait
