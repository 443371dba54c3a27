"""Copies the outputs of ended jobs to where their users want them: in the background, one job after the other.

The end of a job is on disk before the copy begins, and the result of the copy is an event, so the next start finishes
what a crash interrupted. `Collect` copies the files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from swell.core.errors import InvalidTransition, StoreError
from swell.core.events import CopiedOutputs, Event, JobCancelled, OutputsCopied, RunEnded, job_of
from swell.core.ids import JobId
from swell.core.state import JobRecord, State

log = logging.getLogger(__name__)

RETRY_S = 5.0
Collect = Callable[[JobRecord], Awaitable[CopiedOutputs]]


class Outputs:
    def __init__(
        self,
        state: Callable[[], State],
        collect: Collect,
        commit: Callable[[Sequence[Event]], Awaitable[None]],
        now_s: Callable[[], float],
    ) -> None:
        self._state = state
        self._collect = collect
        self._commit = commit
        self._now_s = now_s
        self._waiting: asyncio.Queue[JobId] = asyncio.Queue()

    def happened(self, events: Sequence[Event]) -> None:
        """Queues jobs that ended. Called with durable events."""
        for event in events:
            if isinstance(event, RunEnded | JobCancelled) and (job := job_of(event)) is not None:
                self._want(job)

    def _want(self, job: JobId) -> None:
        record = self._state().jobs.get(job)
        if record is not None and self._is_due(record):
            self._waiting.put_nowait(job)

    def _is_due(self, record: JobRecord) -> bool:
        return record.ended and bool(record.spec.outputs) and record.outputs is None and record.run is not None

    async def run(self) -> None:
        """Until cancelled."""
        for job in self._state().ended:
            self._want(job)
        while True:
            await self._copy(await self._waiting.get())

    async def _copy(self, job: JobId) -> None:
        record = self._state().jobs.get(job)
        if record is None or not self._is_due(record):
            return
        try:
            copied = await self._collect(record)
        except OSError as error:
            copied = CopiedOutputs(into=record.spec.outputs_to, problem=str(error))
        try:
            await self._commit([OutputsCopied(job=job, at_s=self._now_s(), copied=copied)])
        except InvalidTransition:
            log.info("job %d was removed, or queued again, while its outputs were copied", job)
        except StoreError:  # copying again to the same place is harmless
            asyncio.get_running_loop().call_later(RETRY_S, self._want, job)
