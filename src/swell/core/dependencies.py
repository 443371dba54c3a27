"""Dependencies between jobs: which ends a job still waits for, and whether one of them can never come. Pure."""

from __future__ import annotations

from swell.core.ids import JobId
from swell.core.job import JobSpec
from swell.core.state import JobRecord, JobState, State


def unmet(spec: JobSpec, state: State) -> list[JobId]:
    """Jobs whose end it still waits for. A job that is no longer in the state counts as ended as needed."""
    completes = [job for job in spec.depends_on if not _completed(state, job)]
    ends = [job for job in (*spec.after_any, *spec.after_failure) if _is(state, job, ended=False)]
    return [*completes, *ends]


def impossible(spec: JobSpec, state: State) -> str:
    """For people: why a dependency can never be met; empty if all can."""
    for job in spec.depends_on:
        if _is(state, job, ended=True) and not _completed(state, job):
            return f"it depends on job {job}, which {_ended_how(state.jobs[job])}"
    for job in spec.after_failure:
        if _is(state, job, ended=True) and _completed(state, job):
            return f"it was to run after a failure of job {job}, which completed"
    return ""


def _is(state: State, job: JobId, *, ended: bool) -> bool:
    record = state.jobs.get(job)
    return record is not None and record.ended is ended


def _completed(state: State, job: JobId) -> bool:
    record = state.jobs.get(job)
    return record is None or record.state is JobState.COMPLETED


def _ended_how(other: JobRecord) -> str:
    return {"failed": "failed", "cancelled": "was cancelled", "lost": "was lost"}[other.state]
