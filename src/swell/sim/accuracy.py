"""How good forecasts were: each job's first and last one is compared with its end."""

from __future__ import annotations

from dataclasses import dataclass, field

from swell.core.ids import JobId
from swell.sim.forecast import Interval


@dataclass(slots=True)
class Accuracy:
    """Fed by whoever forecasts; bounded by the jobs there are."""

    first: dict[JobId, tuple[float, Interval]] = field(default_factory=dict)  # when it was said, and what
    ended: int = 0
    inside: int = 0  # ended within the interval first said
    error_sum: float = 0.0  # of |end - expected| / time from the forecast to the end

    def said(self, job: JobId, at_s: float, interval: Interval) -> None:
        self.first.setdefault(job, (at_s, interval))

    def happened(self, job: JobId, end_s: float) -> None:
        said = self.first.pop(job, None)
        if said is None:
            return
        at_s, interval = said
        self.ended += 1
        self.inside += interval.end_low_s <= end_s <= interval.end_high_s
        self.error_sum += abs(end_s - interval.end_mid_s) / max(1.0, end_s - at_s)

    def forget(self, job: JobId) -> None:
        """Cancelled or failed: says nothing of the forecast."""
        self.first.pop(job, None)

    def summary(self) -> dict[str, float]:
        """Share of ends inside their interval, and the mean relative error of the expected end."""
        jobs = max(1, self.ended)
        return {"jobs": self.ended, "inside": self.inside / jobs, "mean_error": self.error_sum / jobs}
