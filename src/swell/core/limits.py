"""What one user may have at a time, and what they have. Pure; `plan.limits` judges by it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from swell.core.state import JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one user. 0: no limit."""

    queued: int = 0  # jobs that wait; a submission beyond it is refused
    running: int = 0  # jobs that hold GPUs or CPUs at the same time; those beyond it wait
    requests_per_s: float = 0.0  # sustained; ten times as many at once. Beyond it: 429, with when to try again


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Of one user or one team."""

    queued: int = 0
    running: int = 0
    gpus: int = 0


def use_of(records: Iterable[JobRecord]) -> Use:
    """What these jobs, none of which has ended, amount to."""
    queued = running = gpus = 0
    for record in records:
        if record.holding:
            running += 1
            gpus += record.allocation.gpus if record.allocation else 0
        else:
            queued += 1
    return Use(queued=queued, running=running, gpus=gpus)
