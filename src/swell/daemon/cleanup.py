"""Deletes the files of removed jobs on nodes, in the background, one job at a time.

The removal is on disk before anything is deleted, so the next start finishes what a crash interrupted. A deletion that
fails is retried with exponential back-off up to a limit; `swell doctor` reports what is left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from swell.core.errors import StoreError
from swell.core.events import Event, JobRemoved
from swell.core.ids import JobId
from swell.core.state import State, was_given
from swell.ports import Executor, Record, Refused, Unknown

log = logging.getLogger(__name__)

RETRY_S = 5.0
"""Delay before the first retry; it doubles each time."""
MAX_RETRY_S = 3600.0
MAX_TRIES = 20
"""All retries together take about ten hours; after that only the next start of the daemon tries again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undeleted:
    """A removed job with files that could not be deleted yet."""

    job: JobId
    why: str
    tries: int

    @property
    def given_up(self) -> bool:
        return self.tries >= MAX_TRIES


class Cleanup:
    def __init__(
        self, executor: Executor, record: Record, state: Callable[[], State], *, retry_s: float = RETRY_S
    ) -> None:
        self._executor = executor
        self._record = record
        self._state = state
        self._retry_s = retry_s
        self.undeleted: dict[JobId, Undeleted] = {}
        self.unknown: Sequence[JobId] = ()  # jobs of another database that have files here, which are not deleted
        self._waiting: asyncio.Queue[JobId | tuple[JobId, ...]] = asyncio.Queue()  # to delete, or to look at
        self._busy = False
        self._looked = False

    def happened(self, events: Sequence[Event]) -> None:
        """Queues the files of removed jobs. Called with durable events."""
        for event in events:
            if isinstance(event, JobRemoved):
                self._waiting.put_nowait(event.job)

    @property
    def under_way(self) -> bool:
        """Whether a deletion is running or queued. One that waits for its next retry does not count."""
        return not self._looked or self._busy or not self._waiting.empty()

    def found(self, kept: Sequence[JobId]) -> None:
        """A machine has files of these jobs: deletes the files of those that were removed."""
        self._waiting.put_nowait(tuple(kept))

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            work = await self._waiting.get()
            self._busy = True
            await (self._find(work) if isinstance(work, tuple) else self._delete(work))
            self._busy = False

    async def _find(self, kept: Sequence[JobId]) -> None:
        self.unknown = sorted({*self.unknown, *(job for job in kept if not was_given(self._state(), job))})
        try:
            for job in await self._removed(kept):
                self._waiting.put_nowait(job)
        except StoreError as error:
            log.warning("could not look for files of removed jobs; the next start looks again: %s", error)
        self._looked = True

    async def _removed(self, kept: Sequence[JobId]) -> list[JobId]:
        """Those of `kept` that were removed: only a removal takes a job out of the record. An id that was never given
        here may belong to another database with the same home."""
        state = self._state()
        absent = [job for job in kept if was_given(state, job) and job not in state.jobs]
        return await asyncio.to_thread(lambda: [job for job in absent if self._record.job(job) is None])

    async def _delete(self, job: JobId) -> None:
        try:
            answer = await self._executor.remove(job)
        except Exception as error:
            answer = Unknown(why=str(error))
        if isinstance(answer, Refused | Unknown):
            self._try_again(job, answer.why)
        elif self.undeleted.pop(job, None) is not None:
            log.info("files of the removed job %d are deleted now", job)

    def _try_again(self, job: JobId, why: str) -> None:
        tries = self.undeleted[job].tries + 1 if job in self.undeleted else 1
        failed = self.undeleted[job] = Undeleted(job=job, why=why, tries=tries)
        if failed.given_up:
            log.warning("gave up deleting files of the removed job %d; the next start tries again: %s", job, why)
            return
        delay_s = min(MAX_RETRY_S, self._retry_s * 2.0 ** (tries - 1))
        level = logging.WARNING if tries == 1 else logging.DEBUG
        log.log(level, "files of the removed job %d could not all be deleted, again in %.0f s: %s", job, delay_s, why)
        asyncio.get_running_loop().call_later(delay_s, self._waiting.put_nowait, job)
