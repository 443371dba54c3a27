"""Deadlines: exceeded time limits, stops that need a signal, pending jobs that can never run.

Pure: the caller appends the events, sends the signals and calls again at `next_s`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from swell.core import events as ev
from swell.core.dependencies import impossible
from swell.core.events import VOLUNTARY, Event, StopWhy
from swell.core.ids import RunId
from swell.core.resources import Contact
from swell.core.state import JobRecord, JobState, Run, State, may_be_withdrawn
from swell.core.unsaved import has_boundaries, unsaved_of
from swell.plan import quarantine
from swell.plan.explain import duration

UNKNOWN_BOUNDARY_S = 300.0
"""A preempted run whose next checkpoint cannot be predicted is expected to write it within this time."""
UNHEARD_S = 5.0
"""A started run with the library that has not reported gets no signal for this long after the stop: a short training
may have begun, and even finished, before its report arrives. Its own record is read within this time, too."""
AFTER_LAST_EPOCH_S = 900.0
"""A preempted run gets no signal for this long after its last epoch, because it is about to end."""
LEAST_WAIT_S = 60.0
"""Minimum time that a resize or move waits for a checkpoint."""
URGENT = frozenset({StopWhy.CANCELLED, StopWhy.TIMED_OUT, StopWhy.NOT_WHOLE})
"""Stops that do not wait for a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the daemon waits for others. Settings of the configuration."""

    gang_timeout_s: float = 120.0  # for the workers of a run to be up
    preempt_wait_s: float = 3600.0  # at most, for the next checkpoint of a preempted or paused run
    resize_wait_s: float = 3600.0  # for the next checkpoint of a run to resize or move, if it cannot be predicted


class Force(IntEnum):
    """By what means a stopping run is asked or forced to end."""

    ASK = 0  # through the in-job library
    TERM = 1
    KILL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    events: tuple[Event, ...] = ()
    signals: tuple[tuple[RunId, Force], ...] = ()
    next_s: float | None = None


def due(state: State, now_s: float, patience: Patience) -> Due:
    events: list[Event] = []
    signals: list[tuple[RunId, Force]] = []
    times: list[float] = []
    for job_id in state.active:
        record = state.jobs[job_id]
        if record.state is JobState.STOPPING and record.run is not None:
            force, next_s = force_of(record, record.run, now_s, patience)
            if force is not Force.ASK:
                signals.append((record.run.id, force))
            times.extend([next_s] if next_s is not None else [])
            if may_be_withdrawn(record) and _in_reach(record.run, state):
                _withdrawal(record.run, now_s, patience, events, times)
        elif record.holding and record.run is not None and _in_reach(record.run, state):
            _limit(record, record.run, now_s, patience.gang_timeout_s, events, times)
        elif record.state is JobState.QUEUED:
            events.extend(_impossible(record, state, now_s))
            if record.not_before_s > now_s:
                times.append(record.not_before_s)
    events.extend(quarantine.due(state, now_s))
    return Due(events=tuple(events), signals=tuple(signals), next_s=min(times, default=None))


def _in_reach(run: Run, state: State) -> bool:
    """Limits of a run are enforced only while all its machines answer; otherwise its progress is unknown."""
    return all(state.nodes[name].contact is Contact.HERE for name in run.allocation.nodes if name in state.nodes)


def force_of(record: JobRecord, run: Run, now_s: float, patience: Patience) -> tuple[Force, float | None]:
    """The force to use now, and when to call again."""
    term_s = _term_s(record, run, patience)
    if term_s is None:
        return Force.ASK, None
    if run.stop is not None and run.stop.now:
        return Force.KILL, None
    kill_s = kill_at_s(record, run, patience)
    assert kill_s is not None  # as `term_s`
    if now_s >= kill_s:
        return Force.KILL, None
    if now_s >= term_s:
        return Force.TERM, kill_s
    return Force.ASK, term_s


def kill_at_s(record: JobRecord, run: Run, patience: Patience) -> float | None:
    """When a stopping run is killed if it has not ended by then; None: never."""
    term_s = _term_s(record, run, patience)
    return None if term_s is None else term_s + record.spec.grace_s


def _term_s(record: JobRecord, run: Run, patience: Patience) -> float | None:
    """When a stopping run gets SIGTERM; None: never, it leaves at its next checkpoint or the stop is withdrawn."""
    stop = run.stop
    if stop is None:
        return None
    if stop.why in URGENT:
        return stop.at_s
    if 0 < record.epochs_total <= record.epochs_done:
        return None if stop.why in VOLUNTARY else max(stop.at_s, _last_epoch_s(run) + AFTER_LAST_EPOCH_S)
    if not has_boundaries(record, run):
        return stop.at_s + (UNHEARD_S if record.uses_library and run.started_s is not None else 0.0)
    if run.began_s is None and run.saved_s is not None and run.saved_s > stop.at_s:
        return run.saved_s  # a script without the library has just saved: now it loses least
    if stop.why in VOLUNTARY:
        return None
    wait_s = min(patience.preempt_wait_s, 1.5 * _boundary_in_s(run, stop.at_s) + 5.0)
    return stop.at_s + max(record.spec.grace_s, wait_s)


def _withdrawal(run: Run, now_s: float, patience: Patience, events: list[Event], times: list[float]) -> None:
    """Withdraws a resize or move that reached no checkpoint in time, because other jobs wait for its GPUs. The run is
    not resized or moved again for the same time, or until its next checkpoint."""
    assert run.stop is not None  # `may_be_withdrawn`
    every_s = run.boundary_every_s
    wait_s = max(LEAST_WAIT_S, 2.0 * every_s) if every_s > 0.0 else patience.resize_wait_s
    if now_s < run.stop.at_s + wait_s:
        times.append(run.stop.at_s + wait_s)
        return
    reason = f"it came to no checkpoint at which it could stop within {duration(wait_s)}"
    events.append(ev.RunStopWithdrawn(run=run.id, at_s=now_s, reason=reason, until_s=now_s + wait_s))


def _last_epoch_s(run: Run) -> float:
    """When the last epoch ended. The code after it has no checkpoint, so a stop would make it start over."""
    times_s = (run.last_epoch_s, run.began_s, run.started_s)
    return next((at_s for at_s in times_s if at_s is not None), run.planned_s)


def _boundary_in_s(run: Run, now_s: float) -> float:
    """The expected time until the run's next checkpoint."""
    known_s = unsaved_of(run, now_s).boundary_in_s(now_s)
    return UNKNOWN_BOUNDARY_S if known_s is None else known_s


def _limit(
    record: JobRecord, run: Run, now_s: float, gang_timeout_s: float, events: list[Event], times: list[float]
) -> None:
    limit_s: float | None = None
    why, reason = StopWhy.NOT_WHOLE, f"not all workers were up after {gang_timeout_s:.0f} s"
    if run.started_s is None:  # no limit while the image is fetched: the node has its own
        limit_s = None if run.preparing else max(run.planned_s, run.prepared_s) + gang_timeout_s
    elif record.spec.time_limit_s:
        limit_s = run.started_s + record.spec.time_limit_s - record.ran_s
        why, reason = StopWhy.TIMED_OUT, f"reached its time limit of {record.spec.time_limit_s:.0f} s"
    if limit_s is None:
        return
    if now_s >= limit_s:
        events.append(ev.RunStopRequested(run=run.id, why=why, at_s=now_s, reason=reason))
    else:
        times.append(limit_s)


def _impossible(record: JobRecord, state: State, now_s: float) -> Iterable[Event]:
    reason = impossible(record.spec, state) if record.spec.dependencies else ""
    return [ev.JobCancelled(job=record.id, at_s=now_s, reason=reason)] if reason else []
