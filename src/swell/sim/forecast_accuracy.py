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
from swell.sim.forecast import Interval, says_nothing
from swell.sim.forecast_calibration import COVERAGE, Calibration, Kind, Scales, guesses_of, honest

RECENT = 1000
"""Number of jobs that the median error is taken over."""


@dataclass(slots=True)
class Tally:
    """Of forecasts of ends, one of each job."""

    ended: int = 0
    inside: int = 0  # ended within the interval that was forecast
    unknown: int = 0  # of which people were told that nobody knows
    errors: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    """|end - expected| / time from the forecast to the end."""

    def add(self, at_s: float, interval: Interval, end_s: float) -> None:
        self.ended += 1
        self.inside += interval.end_low_s <= end_s <= interval.end_high_s
        self.unknown += says_nothing(interval.end_low_s - at_s, interval.end_high_s - at_s)
        self.errors.append(abs(end_s - interval.end_mid_s) / max(1.0, end_s - at_s))

    def summary(self) -> dict[str, float]:
        return {
            "jobs": self.ended,
            "inside": self.inside / max(1, self.ended),
            "unknown": self.unknown / max(1, self.ended),
            "median_error": median(self.errors) if self.errors else 0.0,
            "mean_error": sum(self.errors) / max(1, len(self.errors)),
        }


@dataclass(slots=True)
class Accuracy:
    """Fed by the forecaster; bounded by the jobs there are."""

    open: dict[JobId, dict[Kind, tuple[float, Interval]]] = field(default_factory=dict)
    """The first forecast of each kind, and when it was made: how far a job is matters most."""
    first: Tally = field(default_factory=Tally)  # of each job's first forecast
    by_kind: dict[Kind, Tally] = field(default_factory=dict)

    def made(self, job: JobId, kind: Kind, at_s: float, interval: Interval) -> None:
        self.open.setdefault(job, {}).setdefault(kind, (at_s, interval))

    def happened(self, job: JobId, end_s: float) -> None:
        for number, (kind, (at_s, interval)) in enumerate(self.open.pop(job, {}).items()):
            self.by_kind.setdefault(kind, Tally()).add(at_s, interval, end_s)
            if not number:
                self.first.add(at_s, interval, end_s)

    def forget(self, job: JobId) -> None:
        """Cancelled or failed: says nothing of the forecast."""
        self.open.pop(job, None)

    def summary(self) -> dict[str, object]:
        """Share of ends inside their interval and what it should be; relative errors of the expected end. `by_kind`: of
        the first forecast that each job had while it was of that kind."""
        by_kind = {str(kind): self.by_kind[kind].summary() for kind in Kind if kind in self.by_kind}
        return {**self.first.summary(), "inside_wanted": COVERAGE, "by_kind": by_kind}


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
            self.accuracy.made(job, guesses[0].kind, now_s, found[job])
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
