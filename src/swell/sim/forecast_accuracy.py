"""How good forecasts were: the first forecast of each job is compared with its end, and calibration learns from it.

`daemon.forecasts` feeds it events and forecasts, `GET /v1/health` shows its figures.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from swell.core.events import Event, ExitReason, JobCancelled, RunEnded, RunPlanned
from swell.core.ids import JobId
from swell.core.state import State
from swell.sim.forecast import Interval
from swell.sim.forecast_calibration import COVERAGE, Calibration, Kind, Scales, guesses_of, honest

RECENT = 1000
"""Number of jobs that the median error is taken over."""


@dataclass(slots=True)
class Accuracy:
    """Fed by the forecaster; bounded by the jobs there are."""

    first: dict[JobId, tuple[float, Interval]] = field(default_factory=dict)  # when it was made, and what it was
    ended: int = 0
    inside: int = 0  # ended within the interval first forecast
    errors: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    """|end - expected| / time from the forecast to the end."""

    def made(self, job: JobId, at_s: float, interval: Interval) -> None:
        self.first.setdefault(job, (at_s, interval))

    def happened(self, job: JobId, end_s: float) -> None:
        forecast = self.first.pop(job, None)
        if forecast is None:
            return
        at_s, interval = forecast
        self.ended += 1
        self.inside += interval.end_low_s <= end_s <= interval.end_high_s
        self.errors.append(abs(end_s - interval.end_mid_s) / max(1.0, end_s - at_s))

    def forget(self, job: JobId) -> None:
        """Cancelled or failed: says nothing of the forecast."""
        self.first.pop(job, None)

    def summary(self) -> dict[str, float]:
        """Share of ends inside their interval and what it should be; relative errors of the expected end."""
        return {
            "jobs": self.ended,
            "inside": self.inside / max(1, self.ended),
            "inside_wanted": COVERAGE,
            "median_error": median(self.errors) if self.errors else 0.0,
            "mean_error": sum(self.errors) / max(1, len(self.errors)),
        }


@dataclass(slots=True)
class TrackRecord:
    """Between forecasts and their readers: intervals are calibrated, and each forecast is scored when its job ends."""

    accuracy: Accuracy = field(default_factory=Accuracy)
    calibration: Calibration = field(default_factory=Calibration)

    def shown(
        self, raw: Mapping[JobId, Interval], state: State, now_s: float, scales: Mapping[Kind, Scales]
    ) -> dict[JobId, Interval]:
        """What to show at `now_s`. Jobs that have ended since the forecast was begun are left out."""
        found: dict[JobId, Interval] = {}
        for job, interval in raw.items():
            if job not in state.active:
                continue
            guesses = guesses_of(interval, state.jobs[job], now_s)
            found[job] = honest(interval, guesses, scales)
            self.accuracy.made(job, now_s, found[job])
            for guess in guesses:
                self.calibration.made(job, guess)
        return found

    def happened(self, event: Event, state: State) -> None:
        if isinstance(event, RunPlanned):
            self.calibration.started(event.run.job, event.at_s)
        elif isinstance(event, RunEnded) and event.reason is ExitReason.FINISHED:
            self.accuracy.happened(event.run.job, event.at_s)
            self.calibration.ended(event.run.job, event.at_s)
        elif isinstance(event, RunEnded):
            record = state.jobs.get(event.run.job)
            if record is None or record.ended:
                self._forget(event.run.job)
        elif isinstance(event, JobCancelled):
            self._forget(event.job)

    def _forget(self, job: JobId) -> None:
        self.accuracy.forget(job)
        self.calibration.forget(job)
