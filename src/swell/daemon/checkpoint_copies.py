"""Copies the newest checkpoint of each running job to the daemon's store, periodically and in the background.

This module decides which jobs are copied and when; `ports.Checkpoints` transfers the files. The result of each copy is
an event, because it decides on which machines a job may continue (`core.staying`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from swell.core import events as ev
from swell.core.events import Event
from swell.core.ids import JobId, RunId
from swell.core.observations import CheckpointKept
from swell.core.resources import Contact, Node
from swell.core.state import JobRecord, JobState, State
from swell.core.staying import COPIED_FROM
from swell.daemon.watch import checkpoint_kept
from swell.ports import Checkpoints, Clock, Order

log = logging.getLogger(__name__)

EVERY_S = 30.0
"""Minimum time between two copies of one job's checkpoint."""
WAITING_EVERY_S = 3.0
"""The same while a script without the library is to be stopped at its next checkpoint."""
LOOK_S = 1.0
SWEEP_S = 60.0


@dataclass(slots=True)
class _Copying:
    run: RunId
    due_s: float = 0.0
    looked_s: float | None = None  # when the last copy began
    task: asyncio.Task[None] | None = None


class CheckpointCopies:
    def __init__(
        self,
        state: Callable[[], State],
        checkpoints: Checkpoints,
        commit: Callable[[Sequence[Event]], Awaitable[None]],
        clock: Clock,
        every_s: float = EVERY_S,
    ) -> None:
        self._state, self._checkpoints, self._commit, self._clock = state, checkpoints, commit, clock
        self._every_s = every_s
        self._copying: dict[JobId, _Copying] = {}

    async def run(self) -> None:
        """Until cancelled."""
        sweep_s = 0.0
        try:
            while True:
                self.look()
                if self._clock.monotonic_s() >= sweep_s:
                    sweep_s = self._clock.monotonic_s() + SWEEP_S
                    await self.sweep()
                await asyncio.sleep(min(LOOK_S, self._every_s))
        finally:
            tasks = [copying.task for copying in self._copying.values() if copying.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def sweep(self) -> None:
        """Delete copies of jobs that need none any more."""
        for job in await self._checkpoints.copied_jobs():
            record = self._state().jobs.get(job)
            if record is None or record.state in (JobState.COMPLETED, JobState.CANCELLED):
                await self._checkpoints.forget_copy(job)

    def look(self) -> None:
        """Starts the copies that are due. A slow machine delays only the jobs that run on it."""
        state, now_s = self._state(), self._clock.monotonic_s()
        due = {record.id: record for job in state.active if is_copied(record := state.jobs[job], state.nodes)}
        self._copying = {job: known for job, known in self._copying.items() if job in due or _is_busy(known)}
        for job, record in due.items():
            assert record.run is not None  # `is_copied`
            known = self._copying.setdefault(job, _Copying(run=record.run.id))
            if known.run != record.run.id:
                known.run, known.due_s, known.looked_s = record.run.id, 0.0, None
            every_s = min(WAITING_EVERY_S, self._every_s) if _waits_for_files(record) else self._every_s
            known.due_s = min(known.due_s, now_s + every_s)
            if now_s >= known.due_s and not _is_busy(known):
                known.due_s = now_s + every_s
                known.task = asyncio.create_task(self._copy(record, state, known), name=f"checkpoint of job {job}")

    async def _copy(self, record: JobRecord, state: State, known: _Copying) -> None:
        """Copy it once. A new checkpoint was written at an unknown time since the last look. It gets the time of that
        look, so that a stop requested in between does not take it for a later one."""
        assert record.run is not None
        since_s = known.looked_s if known.looked_s is not None else record.run.planned_s
        known.looked_s = self._clock.now_s()
        nodes = {name: state.nodes[name] for name in record.run.allocation.nodes if name in state.nodes}
        others = {name: node for name, node in state.nodes.items() if name not in nodes and _is_asked(node)}
        try:
            kept = await self._checkpoints.copy(Order(record=record, nodes=nodes), others)
            if kept is not None:
                await self._commit([*checkpoint_kept(self._state(), kept), *_seen(record, kept, since_s)])
        except OSError as error:
            log.info("the checkpoint of job %d was not copied now: %s", record.id, error)
        except Exception:
            log.exception("the checkpoint of job %d could not be copied", record.id)


def _is_busy(copying: _Copying) -> bool:
    return copying.task is not None and not copying.task.done()


def _is_asked(node: Node) -> bool:
    return node.executor in COPIED_FROM and node.contact is Contact.HERE and bool(node.boot_id or not node.lease_s)


def is_copied(record: JobRecord, nodes: dict[str, Node]) -> bool:
    """Whether copies are made while the job runs: its machine may have the only copy, and the job allows it. Jobs on
    the daemon's own machine are copied only when they move: if that machine is lost, so is the daemon's store."""
    run = record.run
    if run is None or record.state not in (JobState.RUNNING, JobState.STOPPING) or not record.resumable:
        return False
    first = nodes.get(run.allocation.nodes[0])
    return record.spec.copy_checkpoints and first is not None and first.executor == "ssh" and _is_asked(first)


def _waits_for_files(record: JobRecord) -> bool:
    return record.state is JobState.STOPPING and not record.uses_library


def _seen(record: JobRecord, kept: CheckpointKept, at_s: float) -> list[Event]:
    """The event that a script without the library has written a checkpoint: only its machine sees the files."""
    if record.uses_library or kept.problem or record.run is None:
        return []
    return [ev.CheckpointSeen(run=record.run.id, at_s=at_s)]
