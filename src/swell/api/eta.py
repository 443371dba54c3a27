"""When a running job will probably have ended, from what is known of its speed. Says nothing where that is a guess."""

from __future__ import annotations

from collections.abc import Mapping

from swell.core.state import JobRecord, JobState
from swell.ports import SpeedBook

SPREAD = 1.28
"""Standard deviations to each side: four of five jobs end within."""


def eta_s(record: JobRecord, book: SpeedBook, per_node: Mapping[str, int], now_s: float) -> list[float] | None:
    """[earliest, latest], if it stays at the size it has."""
    allocation = record.allocation
    if record.state is not JobState.RUNNING or allocation is None:
        return None
    remaining = book.remaining(record)
    if not remaining.known:
        return None
    rate = book.speed(record, per_node).rate(max(1, allocation.gpus), len(allocation.parts), allocation.gpu_type)
    if rate <= 0:
        return None
    left_s = max(0.0, remaining.at_speed_1_s / rate - max(0.0, now_s - remaining.as_of_s))
    margin_s = min(1.0, SPREAD * remaining.sigma) * left_s
    return [now_s + left_s - margin_s, now_s + left_s + margin_s]
