"""When a job will probably start and end: by the forecast, or before there is one from what is known of its speed.

None where it would be a guess."""

from __future__ import annotations

from collections.abc import Mapping

from swell.core.state import JobRecord, JobState
from swell.ports import SpeedBook
from swell.sim.forecast import Interval, says_nothing

SPREAD = 1.28
"""Standard deviations to each side: four of five jobs end within."""


def starts_s(record: JobRecord, now_s: float, forecast: Interval | None) -> list[float] | None:
    """[earliest, latest] start of a job that waits."""
    if record.ended or record.holding or forecast is None:
        return None
    if says_nothing(forecast.start_low_s - now_s, forecast.start_high_s - now_s):
        return None
    return [forecast.start_low_s, forecast.start_high_s]


def eta_s(
    record: JobRecord, book: SpeedBook, per_node: Mapping[str, int], now_s: float, forecast: Interval | None = None
) -> list[float] | None:
    """[earliest, latest] end."""
    if record.ended:
        return None
    remaining = book.remaining(record)
    if not remaining.known:
        return None
    if forecast is not None:
        if says_nothing(forecast.end_low_s - now_s, forecast.end_high_s - now_s):
            return None
        return [max(now_s, forecast.end_low_s), max(now_s, forecast.end_high_s)]
    return _as_it_is(record, book, per_node, now_s)


def _as_it_is(record: JobRecord, book: SpeedBook, per_node: Mapping[str, int], now_s: float) -> list[float] | None:
    """If it stays at the size it has."""
    allocation, remaining = record.allocation, book.remaining(record)
    if record.state is not JobState.RUNNING or allocation is None:
        return None
    rate = book.speed(record, per_node).rate(max(1, allocation.gpus), len(allocation.parts), allocation.gpu_type)
    if rate <= 0:
        return None
    left_s = max(0.0, remaining.at_speed_1_s / rate - max(0.0, now_s - remaining.as_of_s))
    margin_s = min(1.0, SPREAD * remaining.sigma) * left_s
    return [now_s + left_s - margin_s, now_s + left_s + margin_s]
