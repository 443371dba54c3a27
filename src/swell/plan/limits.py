"""Limits per user (`options.limits`): refuses submissions and holds jobs back although GPUs are free. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from swell.core.decision import Reason, ReasonCode
from swell.core.errors import Conflict
from swell.core.ids import JobId
from swell.core.job import JobSpec
from swell.core.snapshot import Options
from swell.core.state import JobRecord, State


def check_queue(state: State, specs: Sequence[JobSpec], options: Options) -> None:
    """Raise Conflict if a user would have more pending jobs than allowed."""
    for user, more in sorted(Counter(spec.user for spec in specs).items()):
        most = options.limits_for(user).queued
        if not most:
            continue
        waiting = sum(1 for job in state.active if _waits(state.jobs[job], user))
        if waiting + more > most:
            raise Conflict(
                f"{user} has {_jobs(waiting)} waiting, and with {more} more it would be over the limit of {most} per "
                "user; wait until some have started, cancel some (`swell ls`, `swell cancel`), or ask an operator to "
                "raise options.limits.queued (`swell quota` shows it)"
            )


def _waits(record: JobRecord, user: str) -> bool:
    return record.spec.user == user and not record.holding


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def over_running(records: Iterable[JobRecord], options: Options) -> dict[JobId, Reason]:
    """Pending jobs that may not start because their user already runs the allowed number. A user's own jobs are ordered
    by priority, then by submission. `records`: jobs that could start, and all that hold GPUs."""
    by_user: dict[str, list[JobRecord]] = {}
    for record in records:
        by_user.setdefault(record.spec.user, []).append(record)
    found: dict[JobId, Reason] = {}
    for user, theirs in by_user.items():
        if most := options.limits_for(user).running:
            found.update(_beyond(user, theirs, most))
    return found


def limits_running(options: Options) -> bool:
    return bool(options.limits.running) or any(limits.running for limits in options.limits_of.values())


def last_starts_s(records: Iterable[JobRecord], options: Options) -> dict[str, float]:
    """For each user with a limit of running jobs: when the newest of their runs was planned. A job that waited for this
    limit could not start before that time."""
    found: dict[str, float] = {}
    for record in records:
        user, run = record.spec.user, record.run
        if record.holding and run is not None and options.limits_for(user).running:
            found[user] = max(found.get(user, 0.0), run.planned_s)
    return found


def _beyond(user: str, records: Sequence[JobRecord], most: int) -> Mapping[JobId, Reason]:
    waiting = sorted((r for r in records if not r.holding), key=lambda r: (-r.priority, r.id))
    running = len(records) - len(waiting)
    reason = Reason(code=ReasonCode.LIMIT, detail={"user": user, "limit": most, "running": running})
    return {record.id: reason for record in waiting[max(0, most - running) :]}
