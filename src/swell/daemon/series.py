"""Recent measurements of jobs (losses, step times) as their library shipped them, for people to look at.

Fed by `daemon.engine` with each report, read by the API. Bounded: a job keeps `MAX_NAMES` series of `MAX_POINTS`
points, thinned out evenly as they grow, and `MAX_JOBS` jobs are kept, those that reported last. In memory only:
decisions never depend on measurements, so they are no events, and a restart of the daemon begins them anew.
"""

from __future__ import annotations

from collections.abc import Mapping

from swell.core.ids import JobId
from swell.daemon.reports import Series

MAX_POINTS = 400
MAX_NAMES = 32
MAX_JOBS = 1000


class RecentSeries:
    def __init__(self) -> None:
        self._jobs: dict[JobId, dict[str, list[tuple[float, float]]]] = {}

    def add(self, job: JobId, series: Series) -> None:
        """Append what one report brought. Points that are not newer than the last one came before."""
        if not series:
            return
        kept = self._jobs.pop(job, {})
        self._jobs[job] = kept  # last in order: the most recent
        for name, points in series.items():
            if name in kept or len(kept) < MAX_NAMES:
                kept[name] = _thinned([*kept.get(name, ()), *_after(kept.get(name, []), points)])
        while len(self._jobs) > MAX_JOBS:
            del self._jobs[next(iter(self._jobs))]

    def of(self, job: JobId) -> Mapping[str, tuple[tuple[float, float], ...]]:
        """By name, oldest point first; empty if nothing was reported since the daemon started."""
        return {name: tuple(points) for name, points in sorted(self._jobs.get(job, {}).items())}


def _after(known: list[tuple[float, float]], points: tuple[tuple[float, float], ...]) -> list[tuple[float, float]]:
    last_s = known[-1][0] if known else float("-inf")
    return [(at_s, value) for at_s, value in points if at_s > last_s]


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Every second point while there are too many, the newest always among them."""
    while len(points) > MAX_POINTS:
        points = points[::-1][::2][::-1]
    return points
