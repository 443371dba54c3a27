"""The transition table of jobs: which event may happen to a job in which state.

`TRANSITIONS` is that table; a test walks all pairs, and the docs draw their diagram from it. `lifecycle` calls
`is_stale` and `check` before it applies an event. Nothing here changes a state.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from swell.core import events as ev
from swell.core.errors import InvalidTransition
from swell.core.events import Event
from swell.core.exits import state_after
from swell.core.ids import RunId
from swell.core.state import ENDED, HOLDING, JobRecord, JobState, State, may_be_withdrawn, was_given


class Trigger(StrEnum):
    """The kind of transition that an event causes. A `RunEnded` may cause several; `trigger_of` distinguishes them."""

    PLAN = "planned"
    START = "started"
    REPORT = "report"  # epochs, agreement, in-place resize: no change of state
    STOP = "stop requested"
    WITHDRAW = "stop withdrawn"
    FINISH = "finished"
    FIND = "found to have finished before"  # an attempt that was given up because its machine was lost
    REQUEUE = "run ended, to be run again"
    FAIL = "failed"
    GIVE_UP = "cancelled"
    LOSE = "lost"
    EDIT = "edited"  # pause, resume, priority, update
    AGAIN = "queued again"  # by its user, after its end
    COLLECT = "outputs copied"
    CARRY = "checkpoint copied, or found older than reported"
    REMOVE = "removed"


_J, _T = JobState, Trigger
TRANSITIONS: Mapping[tuple[JobState, Trigger], JobState] = {
    (_J.QUEUED, _T.PLAN): _J.STARTING,
    (_J.QUEUED, _T.GIVE_UP): _J.CANCELLED,
    (_J.QUEUED, _T.FIND): _J.COMPLETED,
    **{(state, _T.FIND): state for state in sorted(HOLDING | ENDED)},
    (_J.QUEUED, _T.EDIT): _J.QUEUED,
    (_J.STARTING, _T.START): _J.RUNNING,
    (_J.RUNNING, _T.START): _J.RUNNING,  # reported twice after a crash
    (_J.STOPPING, _T.START): _J.STOPPING,
    **{(state, _T.STOP): _J.STOPPING for state in sorted(HOLDING)},
    (_J.STOPPING, _T.WITHDRAW): _J.RUNNING,
    **{
        (state, trigger): target
        for state in sorted(HOLDING)
        for trigger, target in (
            (_T.REPORT, state),
            (_T.EDIT, state),
            (_T.FINISH, _J.COMPLETED),
            (_T.REQUEUE, _J.QUEUED),
            (_T.FAIL, _J.FAILED),
            (_T.GIVE_UP, _J.CANCELLED),
            (_T.LOSE, _J.LOST),
        )
    },
    **{(state, _T.EDIT): state for state in sorted(ENDED)},
    **{(state, _T.AGAIN): _J.QUEUED for state in sorted(ENDED)},
    **{(state, _T.COLLECT): state for state in sorted(ENDED)},
    **{(state, _T.CARRY): state for state in JobState},
}
"""(state, trigger) -> next state. Other pairs are invalid. REMOVE, of an ended job, has no next state."""


def trigger_of(job: JobRecord, event: Event) -> Trigger:
    """The trigger of this event for this job."""
    if type(event) is ev.RunEnded:
        return _TRIGGER_OF_END[state_after(job, event.reason)]
    return _SIMPLE_TRIGGERS[type(event)]


_SIMPLE_TRIGGERS: Mapping[type, Trigger] = {
    ev.RunPlanned: Trigger.PLAN,
    ev.RunPreparing: Trigger.REPORT,
    ev.RunStarted: Trigger.START,
    ev.TrainingBegan: Trigger.REPORT,
    ev.EpochEnded: Trigger.REPORT,
    ev.CheckpointSeen: Trigger.REPORT,
    ev.StopAgreed: Trigger.REPORT,
    ev.RunResized: Trigger.REPORT,
    ev.RunStopRequested: Trigger.STOP,
    ev.RunStopWithdrawn: Trigger.WITHDRAW,
    ev.ResultStands: Trigger.FIND,
    ev.JobCancelled: Trigger.GIVE_UP,
    ev.JobPaused: Trigger.EDIT,
    ev.JobResumed: Trigger.EDIT,
    ev.PriorityChanged: Trigger.EDIT,
    ev.JobUpdated: Trigger.EDIT,
    ev.JobRequeued: Trigger.AGAIN,
    ev.OutputsCopied: Trigger.COLLECT,
    ev.CheckpointCopied: Trigger.CARRY,
    ev.JobRewound: Trigger.CARRY,
    ev.JobRemoved: Trigger.REMOVE,
}

_REPORTS = frozenset(
    {
        *(ev.RunPreparing, ev.RunStarted, ev.TrainingBegan, ev.EpochEnded, ev.CheckpointSeen, ev.StopAgreed),
        *(ev.RunResized, ev.RunStopRequested, ev.RunStopWithdrawn, ev.RunEnded),
    }
)
"""Events about a run that must be the current one."""

_TRIGGER_OF_END: Mapping[JobState, Trigger] = {
    JobState.COMPLETED: Trigger.FINISH,
    JobState.QUEUED: Trigger.REQUEUE,
    JobState.FAILED: Trigger.FAIL,
    JobState.CANCELLED: Trigger.GIVE_UP,
    JobState.LOST: Trigger.LOSE,
}


def is_stale(state: State, event: Event) -> bool:
    """Whether this is a report of an old attempt, or of a run that has ended: it is recorded and ignored."""
    if type(event) not in _REPORTS:
        return False
    run: RunId = event.run  # type: ignore[union-attr]  # every report has one
    job = state.jobs.get(run.job)
    if job is None or job.run is None:
        return True
    return job.run.id.attempt != run.attempt or job.run.ended_s is not None


def check(state: State, event: Event) -> None:
    """Raise `InvalidTransition` if this event, which is not stale, cannot be appended now."""
    kind = type(event)
    if kind in _REPORTS:  # of a run that is the job's current one: the job is known
        job = state.jobs[event.run.job]  # type: ignore[union-attr]  # every report has one
        if kind is ev.RunStopWithdrawn and not may_be_withdrawn(job):
            raise InvalidTransition(f"job {job.id} is {job.state}: no stop of it can be withdrawn now")
        _next_state(job, trigger_of(job, event))
        return
    job_id = ev.job_of(event)
    if job_id is None:
        return
    known = state.jobs.get(job_id)
    if kind is ev.JobSubmitted:
        if job_id <= state.last_job:
            raise InvalidTransition(f"job id {job_id} was used before")
        return
    if known is None:
        if kind is ev.JobRemoved and was_given(state, job_id):
            return  # ended so long ago that only the store's tables still have it
        raise InvalidTransition(f"job {job_id} is not known")
    if type(event) is ev.RunPlanned and event.run.attempt != known.attempts + 1:
        raise InvalidTransition(f"run {event.run} planned, but job {job_id} has had {known.attempts} attempts")
    _next_state(known, trigger_of(known, event))


def _next_state(job: JobRecord, trigger: Trigger) -> JobState | None:
    if trigger is Trigger.REMOVE:
        if not job.ended:
            raise InvalidTransition(f"job {job.id} is {job.state}; only an ended job can be removed from the record")
        return None
    target = TRANSITIONS.get((job.state, trigger))
    if target is None:
        raise InvalidTransition(f"job {job.id} is {job.state}: “{trigger}” cannot happen to it")
    return target
