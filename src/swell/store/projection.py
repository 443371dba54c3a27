"""Derives the rows of the tables from events: applies a batch to the state and notes what changed.

Every store runs `project` inside its transaction, so the tables always agree with the log: an event that the transition
table forbids raises here, and nothing of its batch is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from swell.core.events import (
    Event,
    JobRemoved,
    NodeConditionChanged,
    NodeObserved,
    NodeRemoved,
    RunPlanned,
    RunResized,
    job_of,
)
from swell.core.ids import JobId, RunId
from swell.core.lifecycle import apply
from swell.core.resources import Node
from swell.core.spelling import instead_of
from swell.core.state import HOLDING, JobRecord, JobState, Run, State
from swell.ports import Consumption, JobQuery, PastRun
from swell.store.reported import only_reported

GROUPS = {
    "all": frozenset(JobState),
    "queued": frozenset({JobState.QUEUED}),
    "running": HOLDING,
    "ended": frozenset(JobState) - HOLDING - {JobState.QUEUED},
}


def states_of(query: JobQuery) -> list[str]:
    """The states a query asks for, in a fixed order."""
    try:
        return sorted(GROUPS[query.group])
    except KeyError:
        raise ValueError(f"there is no group of jobs {query.group!r}; {instead_of(query.group, GROUPS)}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A job went on on other nodes."""

    seq: int
    run: RunId
    at_s: float
    before: tuple[str, ...]
    after: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Changes:
    """What a batch changed, with the final value of each. A node that is None was removed."""

    jobs: dict[JobId, JobRecord] = field(default_factory=dict)
    reported: dict[JobId, JobRecord] = field(default_factory=dict)  # of these, only what trainings report
    runs: dict[RunId, Run] = field(default_factory=dict)
    removed: list[JobId] = field(default_factory=list)
    nodes: dict[str, Node | None] = field(default_factory=dict)
    moves: list[Moved] = field(default_factory=list)


def project(state: State, events: Sequence[Event]) -> Changes:
    """Apply the events to `state` and say what changed. When it raises, `state` is of no more use."""
    changes = Changes()
    for event in events:
        job_id = job_of(event)
        if job_id is None:
            apply(state, event)
            _note_node(changes, state, event)
        else:
            before = state.jobs.get(job_id)
            apply(state, event)
            _note_job(changes, state, event, before)
    return changes


def _note_job(changes: Changes, state: State, event: Event, before: JobRecord | None) -> None:
    if isinstance(event, JobRemoved):
        changes.jobs.pop(event.job, None)
        changes.reported.pop(event.job, None)
        changes.removed.append(event.job)
        return
    job = state.jobs.get(job_of(event) or 0)
    if job is None or job is before:  # a stale report changes nothing
        return
    if job.id not in changes.jobs and only_reported(event, before, job):
        changes.reported[job.id] = job
        return
    changes.reported.pop(job.id, None)
    changes.jobs[job.id] = job
    if job.run is not None and (job.holding or before is None or job.run is not before.run):
        changes.runs[job.run.id] = job.run  # while it runs always: it may lack what was reported since it was written
        _note_move(changes, state, event, before, job)


def _note_move(changes: Changes, state: State, event: Event, before: JobRecord | None, job: JobRecord) -> None:
    if before is None or before.run is None or job.migrations == before.migrations:
        return
    assert isinstance(event, RunPlanned | RunResized)  # nothing else moves a job
    old, new = before.run.allocation.nodes, event.allocation.nodes
    changes.moves.append(
        Moved(seq=state.seq, run=event.run, at_s=event.at_s, before=old, after=new, reason=event.reason)
    )


def _note_node(changes: Changes, state: State, event: Event) -> None:
    if isinstance(event, NodeObserved):
        changes.nodes[event.node.name] = state.nodes.get(event.node.name)
    elif isinstance(event, NodeConditionChanged | NodeRemoved):
        changes.nodes[event.node] = state.nodes.get(event.node)


def past_run(run: Run, name: str, user: str, changes: Iterable[Event]) -> PastRun:
    """`changes` has the plans and resizes of its job; only a run that was resized in place needs them."""
    held = [(run.planned_s, run.allocation)]
    if run.changed_s > run.planned_s:
        own = [e for e in changes if isinstance(e, RunPlanned | RunResized) and e.run == run.id]
        held = [(event.at_s, event.allocation) for event in own] or held
    return PastRun(run=run, name=name, user=user, held=tuple(held))


def consumed(jobs: Iterable[JobRecord]) -> list[Consumption]:
    """Of jobs that have ended, as SQL would sum them up."""
    found: dict[tuple[str, str, JobState], Consumption] = {}
    for job in sorted(jobs, key=lambda job: (job.spec.user, job.spec.team, job.state)):
        user, team, state = key = (job.spec.user, job.spec.team, job.state)
        sums = found.get(key) or Consumption(user=user, team=team, state=state, jobs=0, ran_s=0.0, gpu_s=0.0)
        ran_s, gpu_s = sums.ran_s + job.ran_s, sums.gpu_s + job.gpu_s
        found[key] = replace(sums, jobs=sums.jobs + 1, ran_s=ran_s, gpu_s=gpu_s)
    return list(found.values())
