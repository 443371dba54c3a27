"""What is known of how fast each job is: `Book` learns from epoch reports; it answers speeds and remaining times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from swell.core.events import EpochEnded, Event, JobSubmitted
from swell.core.ids import JobId
from swell.core.snapshot import Curve
from swell.core.state import JobRecord
from swell.ports import Remaining

PRIOR_EFFICIENCY_LOSS = 0.08
"""Without any measurement: each further GPU costs this part of one in communication."""
PRIOR_REMAINING_S = 3600.0


@dataclass(frozen=True, slots=True)
class PriorSpeed:
    """Before anything is measured: communication makes the k-th GPU worth less than the one before."""

    max_gpus: int

    def curve(self, gpu_type: str) -> Curve:
        return tuple(k / (1 + PRIOR_EFFICIENCY_LOSS * max(0, k - 1)) for k in range(self.max_gpus + 1))

    def rate(self, gpus: int, nodes: int, gpu_type: str) -> float:
        return gpus / (1 + PRIOR_EFFICIENCY_LOSS * (max(0, gpus - 1) + (nodes - 1)))


class Book:
    def __init__(self) -> None:
        self._speeds: dict[int, PriorSpeed] = {}
        self._remaining: dict[JobId, tuple[JobRecord, Remaining]] = {}
        self._epoch_1_s: dict[JobId, float] = {}

    def learn(self, event: Event) -> None:
        if isinstance(event, EpochEnded):
            rate = PriorSpeed(max(1, event.gpus)).rate(max(1, event.gpus), event.nodes, event.gpu_type)
            self._epoch_1_s[event.run.job] = event.epoch_s * rate
        elif isinstance(event, JobSubmitted):
            self._epoch_1_s.pop(event.job, None)

    def speed(self, job: JobRecord, gpus_per_node: Mapping[str, int]) -> PriorSpeed:
        most = max(1, job.spec.gpus.max)
        return self._speeds.setdefault(most, PriorSpeed(most))

    def remaining(self, job: JobRecord) -> Remaining:
        cached = self._remaining.get(job.id)
        if cached is not None and cached[0] is job:
            return cached[1]
        remaining = self._estimate(job)
        self._remaining[job.id] = (job, remaining)
        return remaining

    def _estimate(self, job: JobRecord) -> Remaining:
        since = job.run.last_epoch_s if job.run and job.run.last_epoch_s else None
        as_of_s = since or (job.run.started_s if job.run and job.run.started_s else job.submitted_s)
        epoch_1_s = self._epoch_1_s.get(job.id)
        if epoch_1_s is not None and job.epochs_total:
            left = max(0, job.epochs_total - job.epochs_done)
            return Remaining(at_speed_1_s=left * epoch_1_s, as_of_s=as_of_s, sigma=0.1, known=True)
        if job.spec.estimated_s:
            return Remaining(at_speed_1_s=job.spec.estimated_s, as_of_s=as_of_s, sigma=0.5, known=True)
        return Remaining(at_speed_1_s=PRIOR_REMAINING_S, as_of_s=as_of_s, sigma=1.0)
