"""Recent measurements of jobs (losses, step times) as their library reported them, for people to look at.

Fed by `daemon.observing` with each report and by `daemon.idle_gpus` with what machines measure, read by the API.
Bounded: `MAX_NAMES` series per job, `MAX_POINTS` points per series, thinned out evenly as they grow, and `MAX_JOBS`
jobs, those that reported last. In memory only: decisions never depend on them, so they are no events, and they are lost
when the daemon restarts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from swell.core.events import EpochEnded, Event
from swell.core.ids import JobId
from swell.daemon.reports import Series

SAMPLES = "samples/s"
GPU_PERCENT = "GPU utilisation (%)"
GPU_MEMORY = "GPU memory (MiB)"
"""Names of the series that the daemon adds to those of the library; people read them."""
MAX_POINTS = 400
MAX_NAMES = 32
MAX_JOBS = 1000


class RecentSeries:
    def __init__(self) -> None:
        self._jobs: dict[JobId, dict[str, list[tuple[float, float]]]] = {}

    def add(self, job: JobId, series: Series) -> None:
        """Append the points of one report. Points that are not newer than the last one were reported before."""
        if not series:
            return
        kept = self._jobs.pop(job, {})
        self._jobs[job] = kept  # last in order: the most recent
        for name, points in series.items():
            if name in kept or len(kept) < MAX_NAMES:
                kept[name] = _thinned([*kept.get(name, ()), *_after(kept.get(name, []), points)])
        while len(self._jobs) > MAX_JOBS:
            del self._jobs[next(iter(self._jobs))]

    def happened(self, events: Sequence[Event]) -> None:
        """Adds the throughput of each epoch, which comes from the library or from the log."""
        for event in events:
            if isinstance(event, EpochEnded) and event.samples_per_s > 0.0:
                self.add(event.run.job, {SAMPLES: ((event.at_s, event.samples_per_s),)})

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
