"""What time alone brings about: limits that are over, stops that need a signal, jobs that wait for the impossible.

Pure: the caller appends the events, sends the signals and comes back at `next_s`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from swell.core import events as ev
from swell.core.events import Event, StopWhy
from swell.core.ids import RunId
from swell.core.state import ENDED, JobRecord, JobState, Run, State

UNKNOWN_EPOCH_PATIENCE_S = 300.0
"""How long a run that uses the library may take to its first epoch's end when asked to stop."""
MAX_PATIENCE_S = 900.0
"""A stop at an epoch's end never waits longer than this: then SIGTERM."""
URGENT = frozenset({StopWhy.CANCELLED, StopWhy.TIMED_OUT, StopWhy.NOT_WHOLE})
"""Stops that do not wait for an epoch's end."""


class Force(IntEnum):
    """How hard a stopping run is pushed."""

    ASK = 0  # through the in-job library
    TERM = 1
    KILL = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    events: tuple[Event, ...] = ()
    signals: tuple[tuple[RunId, Force], ...] = ()
    next_s: float | None = None


def due(state: State, now_s: float, gang_timeout_s: float) -> Due:
    events: list[Event] = []
    signals: list[tuple[RunId, Force]] = []
    times: list[float] = []
    for job_id in state.active:
        record = state.jobs[job_id]
        if record.state is JobState.STOPPING and record.run is not None:
            force, next_s = force_of(record, record.run, now_s)
            if force is not Force.ASK:
                signals.append((record.run.id, force))
            times.extend([next_s] if next_s is not None else [])
        elif record.holding and record.run is not None:
            _limit(record, record.run, now_s, gang_timeout_s, events, times)
        elif record.state is JobState.QUEUED:
            events.extend(_impossible(record, state, now_s))
            if record.not_before_s > now_s:
                times.append(record.not_before_s)
    return Due(events=tuple(events), signals=tuple(signals), next_s=min(times, default=None))


def force_of(record: JobRecord, run: Run, now_s: float) -> tuple[Force, float | None]:
    """How hard to push now, and when to look again."""
    stop = run.stop
    if stop is None:
        return Force.ASK, None
    term_s = stop.at_s if stop.why in URGENT or run.began_s is None else stop.at_s + patience_s(record, run)
    kill_s = term_s + record.spec.grace_s
    if now_s >= kill_s:
        return Force.KILL, None
    if now_s >= term_s:
        return Force.TERM, kill_s
    return Force.ASK, term_s


def patience_s(record: JobRecord, run: Run) -> float:
    """How long to wait for a stop at an epoch's end: its grace, or one and a half of its epochs if that is more."""
    done = record.epochs_done - run.epochs_before
    if run.began_s is None or run.last_epoch_s is None or done < 1:
        return max(record.spec.grace_s, UNKNOWN_EPOCH_PATIENCE_S)
    epoch_s = (run.last_epoch_s - run.began_s) / done
    return max(record.spec.grace_s, min(MAX_PATIENCE_S, 1.5 * epoch_s + 5.0))


def _limit(
    record: JobRecord, run: Run, now_s: float, gang_timeout_s: float, events: list[Event], times: list[float]
) -> None:
    limit_s: float | None = None
    why, reason = StopWhy.NOT_WHOLE, f"not all workers were up after {gang_timeout_s:.0f} s"
    if run.started_s is None:
        limit_s = run.planned_s + gang_timeout_s
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
    for job in record.spec.depends_on:
        other = state.jobs.get(job)
        if other is not None and other.state in ENDED and other.state is not JobState.COMPLETED:
            reason = f"it depends on job {job}, which {_ended_how(other)}"
            return [ev.JobCancelled(job=record.id, at_s=now_s, reason=reason)]
    return []


def _ended_how(other: JobRecord) -> str:
    return {"failed": "failed", "cancelled": "was cancelled", "lost": "was lost"}[other.state]
