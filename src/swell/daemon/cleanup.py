"""Deletes what removed jobs left on nodes: in the background, one after the other. That a job was removed is on disk
before; so what a crash, a stop or an error leaves undone is found, and done, at the next start."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from swell.core.errors import StoreError
from swell.core.events import Event, JobRemoved
from swell.core.ids import JobId
from swell.core.state import State, was_given
from swell.ports import Executor, Record

log = logging.getLogger(__name__)


class Cleanup:
    def __init__(self, executor: Executor, record: Record, state: Callable[[], State]) -> None:
        self._executor = executor
        self._record = record
        self._state = state
        self._waiting: asyncio.Queue[JobId] = asyncio.Queue()
        self._deleting = False
        self._looked = False

    def happened(self, events: Sequence[Event]) -> None:
        """Of events that are durable."""
        for event in events:
            if isinstance(event, JobRemoved):
                self._waiting.put_nowait(event.job)

    @property
    def under_way(self) -> bool:
        return not self._looked or self._deleting or not self._waiting.empty()

    async def run(self, kept: Sequence[JobId]) -> None:
        """Until cancelled. `kept`: jobs of which there is something at the start."""
        await self._find(kept)
        while True:
            job = await self._waiting.get()
            self._deleting = True
            await self._delete(job)
            self._deleting = False

    async def _find(self, kept: Sequence[JobId]) -> None:
        try:
            for job in await self._removed(kept):
                self._waiting.put_nowait(job)
        except StoreError as error:
            log.warning("could not look for files of removed jobs; the next start looks again: %s", error)
        self._looked = True

    async def _removed(self, kept: Sequence[JobId]) -> list[JobId]:
        """Of these, jobs that were here and were removed. Nothing else takes a job out of the record; an id that was
        never given here may be of another database with the same home."""
        state = self._state()
        absent = [job for job in kept if was_given(state, job) and job not in state.jobs]
        return await asyncio.to_thread(lambda: [job for job in absent if self._record.job(job) is None])

    async def _delete(self, job: JobId) -> None:
        try:
            await self._executor.remove(job)
        except Exception as error:
            log.warning(
                "files of the removed job %d could not all be deleted; the next start tries again: %s", job, error
            )
