"""What reports of a training change in its job's record: a few numbers, written without the rest of the record.

A record holds the job's whole specification and environment, and a training may report every second. `jobs.record` and
`runs.record` are as of the last change of another kind; `jobs.reported` is what reports made of them since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from swell.core.events import CheckpointSeen, EpochEnded, Event
from swell.core.evolve import changer
from swell.core.state import JobRecord, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    epochs_done: int
    epochs_saved: int
    epochs_total: int
    gpu_memory_mib: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    last_epoch_s: float | None = None
    saved_s: float | None = None
    boundary_every_s: float = 0.0


_NAMES = frozenset(one.name for one in fields(Reported))
OF_RUN = tuple(one.name for one in fields(Run) if one.name in _NAMES)
OF_JOB = tuple(one.name for one in fields(JobRecord) if one.name in _NAMES)
_change_run: Callable[..., Run] = changer(Run, *OF_RUN)
_change_job: Callable[..., JobRecord] = changer(JobRecord, "run", *OF_JOB)


def reported_of(job: JobRecord) -> Reported:
    """Of a job with a run."""
    return Reported(**_values(job, OF_JOB), **_values(job.run, OF_RUN))


def with_reported(job: JobRecord, reported: Reported) -> JobRecord:
    """The record as it was written, with what was reported since."""
    assert job.run is not None  # somebody reported
    run = run_with_reported(job.run, reported)
    return _change_job(job, run, *(getattr(reported, name) for name in OF_JOB))


def run_with_reported(run: Run, reported: Reported) -> Run:
    return _change_run(run, *(getattr(reported, name) for name in OF_RUN))


def only_reported(event: Event, before: JobRecord | None, after: JobRecord) -> bool:
    """The event changed nothing of the record but what `Reported` has."""
    if not isinstance(event, EpochEnded | CheckpointSeen) or before is None or before.run is None:
        return False
    return after.run is not None and with_reported(before, reported_of(after)) == after


def _values(value: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}
