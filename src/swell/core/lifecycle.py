"""Applies events to the state. `apply` is the only function that changes a `State`, in O(1) per event, regardless of
the number of jobs. This module applies events about jobs and runs; `core.cluster_changes` applies those about machines,
the policy and users; `core.transitions` decides which event may happen when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from swell.core import events as ev
from swell.core.budgets import charge, service_s
from swell.core.cluster_changes import CLUSTER_CHANGES
from swell.core.events import Event, ExitReason, StopWhy
from swell.core.evolve import changer, evolve, maker
from swell.core.exits import FAILURES, is_spared, left_at_checkpoint
from swell.core.state import (
    ENDED,
    KEEP_ENDED,
    RECENT,
    CheckpointCopy,
    JobRecord,
    JobState,
    Run,
    State,
    StopRecord,
    Withdrawal,
    team_of,
    unsaved_since_s,
)
from swell.core.transitions import TRANSITIONS, Trigger, check, is_stale, trigger_of

_make_job, _make_run = maker(JobRecord), maker(Run)

MAX_BACKOFF_S = 3600.0
MAX_FAILED_STARTS = 20
NODE_FULL_RETRY_S = 30.0
"""A node without room is not a fault of the job: it is retried without limit, after this delay."""
RESTART_COST_MEMORY = 0.5
"""Weight of the newest measured restart in the running mean."""


def replay(events: Iterable[Event], state: State | None = None) -> State:
    """The state after these events, applied in order."""
    state = state if state is not None else State()
    for event in events:
        apply(state, event)
    return state


def apply(state: State, event: Event) -> None:
    """Apply one event and number it. Raises `InvalidTransition` before it changes anything."""
    if not is_stale(state, event):
        check(state, event)
        _APPLY[type(event)](state, event)
    state.seq += 1
    state.recent.append(ev.job_of(event))
    if len(state.recent) > 2 * RECENT:
        del state.recent[:RECENT]


def _submitted(state: State, event: ev.JobSubmitted) -> None:
    spec = event.spec
    state.jobs[event.job] = _make_job(
        id=event.job,
        spec=spec,
        submitted_s=event.at_s,
        queued_since_s=event.at_s,
        key=event.key,
        batch=event.batch,
        priority=spec.priority,
        uses_library=spec.uses_library,
        unit=spec.unit,
        epochs_total=spec.epochs,
    )
    state.active[event.job] = None
    state.last_job = event.job
    if event.key:
        state.keys[event.key] = event.job


def _planned(state: State, event: ev.RunPlanned) -> None:
    job = state.jobs[event.run.job]
    run = _make_run(
        id=event.run,
        allocation=event.allocation,
        planned_s=event.at_s,
        changed_s=event.at_s,
        reason=event.reason,
        epochs_before=job.epochs_done,
        stop_cost_s=_stop_cost_s(job),
        boundary_every_s=job.run.boundary_every_s if job.run is not None else 0.0,
    )
    moved = _has_moved(job, event)
    state.jobs[job.id] = evolve(
        job,
        state=JobState.STARTING,
        run=run,
        attempts=event.run.attempt,
        migrations=job.migrations + moved,
        first_started_s=event.at_s if job.first_started_s is None else job.first_started_s,
        waited_s=job.waited_s + wait_s(job, event.at_s),
    )


def _has_moved(job: JobRecord, event: ev.RunPlanned) -> bool:
    return job.run is not None and set(job.run.allocation.nodes) != set(event.allocation.nodes)


def _with_run(job: JobRecord, **changes: Any) -> Run:
    assert job.run is not None  # `is_stale` was asked first
    return evolve(job.run, **changes)


def _preparing(state: State, event: ev.RunPreparing) -> None:
    job = state.jobs[event.run.job]
    state.jobs[job.id] = evolve(job, run=_with_run(job, preparing=event.detail, prepared_s=event.at_s))


def _started(state: State, event: ev.RunStarted) -> None:
    job = state.jobs[event.run.job]
    if job.run and job.run.started_s is not None:
        return
    target, run = TRANSITIONS[job.state, Trigger.START], _with_run(job, started_s=event.at_s, preparing="")
    state.jobs[job.id] = evolve(job, state=target, run=run, files_on=run.allocation.nodes[0])
    for name in run.allocation.nodes:
        if name in state.nodes and state.nodes[name].failed_starts:
            state.nodes[name] = evolve(state.nodes[name], failed_starts=())


def _began(state: State, event: ev.TrainingBegan) -> None:
    job = state.jobs[event.run.job]
    saves = event.saves or (ev.Saves.EPOCHS if event.unit == "epoch" else ev.Saves.ANYWHERE)
    run = _with_run(job, began_s=event.at_s, saves=saves)
    cost = job.restart_cost_s
    if job.attempts > 1:
        cost = _blend(cost, event.at_s - run.planned_s + run.stop_cost_s)
    # The training reports where it resumes: if its checkpoint is older than the last report, the job is set back.
    state.jobs[job.id] = evolve(
        job,
        run=evolve(run, epochs_before=event.epoch),
        files_on=run.allocation.nodes[0],  # `RunStarted` may be missing if the connection was down meanwhile
        uses_library=True,
        restart_cost_s=cost,
        unit=event.unit,
        epochs_done=event.epoch,
        epochs_saved=event.epoch,
        epochs_total=event.epochs or job.epochs_total,
    )


def _stop_cost_s(job: JobRecord) -> float:
    """The cost of stopping the last run: the time from its last complete epoch (or checkpoint, if it saves by a rule of
    its own) to its end. If all ranks agreed on a step within an epoch, only the time since the request, because no
    work was lost."""
    last = job.run
    if last is None or last.exit_reason is not ExitReason.STOPPED or last.ended_s is None:
        return 0.0
    if last.saves is ev.Saves.OWN:
        return max(0.0, last.ended_s - unsaved_since_s(last, last.ended_s))
    if last.stop is not None and last.stop.agreed is not None and last.stop.agreed[1] > 0:
        return max(0.0, last.ended_s - last.stop.at_s)
    since = last.last_epoch_s if last.last_epoch_s is not None else last.began_s
    return max(0.0, last.ended_s - since) if since is not None else 0.0


def _blend(old: float | None, new: float) -> float:
    return new if old is None else old + RESTART_COST_MEMORY * (new - old)


def _epoch(state: State, event: ev.EpochEnded) -> None:
    """By far the most frequent event."""
    job = state.jobs[event.run.job]
    saved = max(job.epochs_saved, event.epoch - event.unsaved)
    state.jobs[job.id] = _progressed(
        job,
        _reported_run(job, event, saved),
        max(job.epochs_done, event.epoch),
        saved,
        max(job.gpu_memory_mib, event.gpu_memory_mib),
        dict(event.metrics) if event.metrics else job.metrics,
        event.epochs or job.epochs_total,
    )


def _reported_run(job: JobRecord, event: ev.EpochEnded, saved: int) -> Run:
    """The run after a report: the times of its last epoch and checkpoint, and the interval between checkpoints."""
    run = job.run
    assert run is not None  # not stale
    if event.saves is not None and event.saves is not run.saves:
        run = evolve(run, saves=event.saves)
    by_epochs = job.unit == "epoch" and run.saves is not ev.Saves.OWN and job.resumable
    every_s = event.epoch_s if by_epochs and event.epoch_s > 0.0 else run.boundary_every_s
    if saved > job.epochs_saved:
        if not by_epochs:
            every_s = event.at_s - unsaved_since_s(run, event.at_s)
        saving = run if run.withdrawn is None else evolve(run, withdrawn=None)
        return _reported(saving, event.at_s, event.at_s, every_s)
    return _trained(run, event.at_s) if event.count else _expecting(run, every_s)


_expecting = changer(Run, "boundary_every_s")
_trained = changer(Run, "last_epoch_s")
_reported = changer(Run, "last_epoch_s", "saved_s", "boundary_every_s")
_progressed = changer(JobRecord, "run", "epochs_done", "epochs_saved", "gpu_memory_mib", "metrics", "epochs_total")


def _checkpoint_seen(state: State, event: ev.CheckpointSeen) -> None:
    job = state.jobs[event.run.job]
    assert job.run is not None  # not stale
    every_s = event.at_s - unsaved_since_s(job.run, event.at_s)
    run = _with_run(job, saved_s=event.at_s, boundary_every_s=every_s, withdrawn=None)
    state.jobs[job.id] = evolve(job, run=run, epochs_saved=max(job.epochs_saved, job.epochs_done))


def _stop_requested(state: State, event: ev.RunStopRequested) -> None:
    job = state.jobs[event.run.job]
    assert job.run is not None  # not stale
    before = job.run.stop
    agreed = before.agreed if before else job.run.agreed
    stop = StopRecord(why=event.why, at_s=event.at_s, reason=event.reason, by=event.by, now=event.now, agreed=agreed)
    state.jobs[job.id] = evolve(job, state=JobState.STOPPING, run=_with_run(job, stop=stop))


def _stop_withdrawn(state: State, event: ev.RunStopWithdrawn) -> None:
    job = state.jobs[event.run.job]
    stop = job.run.stop if job.run else None
    assert stop is not None  # `check` was asked first
    withdrawn = Withdrawal(
        why=stop.why, at_s=event.at_s, change=stop.reason, reason=event.reason, until_s=event.until_s
    )
    run = _with_run(job, stop=None, withdrawn=withdrawn, agreed=stop.agreed)
    state.jobs[job.id] = evolve(job, state=JobState.RUNNING, run=run)


def _agreed(state: State, event: ev.StopAgreed) -> None:
    job = state.jobs[event.run.job]
    if job.run is None or job.run.stop is None:
        return
    stop = evolve(job.run.stop, agreed=(event.epoch, event.step))
    state.jobs[job.id] = evolve(job, run=_with_run(job, stop=stop))


def _resized(state: State, event: ev.RunResized) -> None:
    job = state.jobs[event.run.job]
    assert job.run is not None  # not stale
    run = _with_run(job, allocation=event.allocation, changed_s=event.at_s)
    moved = set(job.run.allocation.nodes) != set(event.allocation.nodes)
    charge(state, team_of(job.spec), job.run, event.at_s)
    state.jobs[job.id] = evolve(
        job,
        run=run,
        gpu_s=job.gpu_s + service_s(job.run, event.at_s),
        resizes=job.resizes + 1,
        migrations=job.migrations + moved,
    )


def wait_s(job: JobRecord, until_s: float) -> float:
    """The length of the current wait of a pending job; 0 while it is paused, because then it waits for its user."""
    return 0.0 if job.paused else max(0.0, until_s - job.queued_since_s)


def _ended(state: State, event: ev.RunEnded) -> None:
    job = state.jobs[event.run.job]
    assert job.run is not None  # not stale
    target = TRANSITIONS[job.state, trigger_of(job, event)]
    lost_s = _lost_s(job, job.run, event)
    state.lost_s += lost_s
    charge(state, team_of(job.spec), job.run, event.at_s)
    if event.reason is ExitReason.START_FAILED:
        _blame(state, job.run)
    run = _with_run(
        job,
        ended_s=event.at_s,
        exit_reason=event.reason,
        exit_code=event.exit_code,
        message=event.message,
        lost_s=lost_s,
    )
    why = (
        job.run.stop.why if job.run.stop and target is JobState.QUEUED else None
    )  # else it ended before it was stopped
    spared, full = is_spared(job, event.reason) and target is JobState.QUEUED, event.reason is ExitReason.NODE_FULL
    failed = event.reason in FAILURES and not spared
    changes: dict[str, Any] = {
        "state": target,
        "run": run,
        "failures": job.failures + failed,
        "kills": job.kills + spared,
        "lost_runs": job.lost_runs + (event.reason is ExitReason.SHIM_LOST),
        "preemptions": job.preemptions + (why is StopWhy.PREEMPTED),
        "resizes": job.resizes + (why is StopWhy.RESIZING),
        "ran_s": job.ran_s + max(0.0, event.at_s - (run.started_s if run.started_s is not None else event.at_s)),
        "gpu_s": job.gpu_s + service_s(run, event.at_s),
        "lost_s": job.lost_s + lost_s,
        "queued_since_s": event.at_s,
        # The cause of a stop is in the run's record; the job's message is about how the job ended or last failed.
        "message": event.message if failed or full or spared or target in ENDED else job.message,
    }
    if event.reason is ExitReason.NODE_LOST and not job.files_on:  # it may have trained there without a report
        changes["files_on"] = run.allocation.nodes[0]
    if (failed or full or spared) and target is JobState.QUEUED:
        tries = job.kills if spared else job.failures
        backoff_s = NODE_FULL_RETRY_S if full else min(MAX_BACKOFF_S, job.spec.backoff_s * 2.0**tries)
        changes["not_before_s"] = event.at_s + backoff_s
    if target in ENDED:
        _retire(state, evolve(job, ended_s=event.at_s, **changes))
    else:
        state.jobs[job.id] = evolve(job, **changes)


def _blame(state: State, run: Run) -> None:
    """Counts a failed start against its machine. With several machines the cause is unknown, so none is counted."""
    node = state.nodes.get(run.allocation.nodes[0]) if len(run.allocation.nodes) == 1 else None
    if node is not None:
        others = tuple(job for job in node.failed_starts if job != run.id.job)
        state.nodes[node.name] = evolve(node, failed_starts=(*others, run.id.job)[-MAX_FAILED_STARTS:])


def _lost_s(job: JobRecord, run: Run, event: ev.RunEnded) -> float:
    """The work that is lost with this end. A run that finished, or left right after a checkpoint as requested, loses
    nothing; nor does one that had not begun to train."""
    if job.uses_library and run.began_s is None:
        return 0.0
    if left_at_checkpoint(event) or event.reason is ExitReason.FINISHED or run.started_s is None:
        return 0.0
    return max(0.0, event.at_s - unsaved_since_s(run, event.at_s))


def _retire(state: State, job: JobRecord) -> None:
    """Move an ended job from the active to the ended ones, and drop the oldest ended one if there are too many."""
    state.jobs[job.id] = job
    del state.active[job.id]
    state.ended[job.id] = None
    state.counts[job.state] = state.counts.get(job.state, 0) + 1
    if len(state.ended) > KEEP_ENDED:
        _forget(state, next(iter(state.ended)))


def _forget(state: State, job_id: int) -> None:
    job = state.jobs.pop(job_id)
    del state.ended[job_id]
    if job.key:
        state.keys.pop(job.key, None)


def _result_stands(state: State, event: ev.ResultStands) -> None:
    job = state.jobs[event.run.job]
    found = evolve(job, result_of=event.run.attempt)
    if job.state is not JobState.QUEUED:
        state.jobs[job.id] = found if job.holding else job
        return
    waited_s = job.waited_s + wait_s(job, event.at_s)
    _retire(state, evolve(found, state=JobState.COMPLETED, message="", waited_s=waited_s, ended_s=event.at_s))


def _cancelled(state: State, event: ev.JobCancelled) -> None:
    job = state.jobs[event.job]
    message = event.reason or (f"cancelled by {event.by}" if event.by else "cancelled")
    waited_s = job.waited_s + wait_s(job, event.at_s)
    _retire(state, evolve(job, state=JobState.CANCELLED, message=message, waited_s=waited_s, ended_s=event.at_s))


def _paused(state: State, event: ev.JobPaused) -> None:
    job = state.jobs[event.job]
    waited_s = job.waited_s + wait_s(job, event.at_s) if job.state is JobState.QUEUED else job.waited_s
    state.jobs[event.job] = evolve(job, paused=True, waited_s=waited_s)


def _resumed(state: State, event: ev.JobResumed) -> None:
    job = state.jobs[event.job]
    queued_since_s = event.at_s if job.paused and job.state is JobState.QUEUED else job.queued_since_s
    state.jobs[event.job] = evolve(job, paused=False, queued_since_s=queued_since_s)


def _priority(state: State, event: ev.PriorityChanged) -> None:
    state.jobs[event.job] = evolve(state.jobs[event.job], priority=event.priority)


def _updated(state: State, event: ev.JobUpdated) -> None:
    job = state.jobs[event.job]
    changes: dict[str, Any] = {}
    if event.gpus is not None:
        changes["gpus"] = event.gpus
    if event.time_limit_s is not None:
        changes["time_limit_s"] = event.time_limit_s
    state.jobs[event.job] = evolve(job, spec=evolve(job.spec, **changes))


def _requeued(state: State, event: ev.JobRequeued) -> None:
    """Queue an ended job again, with all its retries. Its progress and statistics stay in its record."""
    del state.ended[event.job]
    state.active[event.job] = None
    state.jobs[event.job] = evolve(
        state.jobs[event.job],
        state=JobState.QUEUED,
        paused=False,
        failures=0,
        kills=0,
        lost_runs=0,
        not_before_s=0.0,
        queued_since_s=event.at_s,
        ended_s=None,
        message="",
        outputs=None,
    )


def _collected(state: State, event: ev.OutputsCopied) -> None:
    state.jobs[event.job] = evolve(state.jobs[event.job], outputs=event.copied)


def _copied(state: State, event: ev.CheckpointCopied) -> None:
    copy = CheckpointCopy(
        epoch=event.epoch, at_s=event.at_s, bytes=event.bytes, problem=event.problem, shared_by=event.shared_by
    )
    state.jobs[event.job] = evolve(state.jobs[event.job], copy=copy)


def _rewound(state: State, event: ev.JobRewound) -> None:
    job = state.jobs[event.job]
    words = f"set back to {job.unit} {event.epoch}" + (f": {event.why}" if event.why else "")
    run = None if job.run is None else evolve(job.run, epochs_before=min(job.run.epochs_before, event.epoch))
    done, saved = min(job.epochs_done, event.epoch), min(job.epochs_saved, event.epoch)
    state.jobs[job.id] = evolve(job, run=run, epochs_done=done, epochs_saved=saved, rewound=words)


def _removed(state: State, event: ev.JobRemoved) -> None:
    if event.job in state.jobs:
        _forget(state, event.job)


def _ids_skipped(state: State, event: ev.IdsSkipped) -> None:
    if event.through > state.last_job:
        state.skipped = (*state.skipped, (state.last_job + 1, event.through))
        state.last_job = event.through


_APPLY: Mapping[type, Callable[[State, Any], None]] = {
    ev.JobSubmitted: _submitted,
    ev.RunPlanned: _planned,
    ev.RunPreparing: _preparing,
    ev.RunStarted: _started,
    ev.TrainingBegan: _began,
    ev.EpochEnded: _epoch,
    ev.CheckpointSeen: _checkpoint_seen,
    ev.RunStopRequested: _stop_requested,
    ev.RunStopWithdrawn: _stop_withdrawn,
    ev.StopAgreed: _agreed,
    ev.RunResized: _resized,
    ev.RunEnded: _ended,
    ev.ResultStands: _result_stands,
    ev.JobCancelled: _cancelled,
    ev.JobPaused: _paused,
    ev.JobResumed: _resumed,
    ev.PriorityChanged: _priority,
    ev.JobUpdated: _updated,
    ev.JobRequeued: _requeued,
    ev.OutputsCopied: _collected,
    ev.CheckpointCopied: _copied,
    ev.JobRewound: _rewound,
    ev.JobRemoved: _removed,
    ev.IdsSkipped: _ids_skipped,
    **CLUSTER_CHANGES,
}
