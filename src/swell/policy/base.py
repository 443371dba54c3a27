"""What every policy stands on: the protocol is `swell.ports.Policy`; here are the few things they all need.

A policy sees one priority class at a time, without the jobs that keep what they have (`policy.layers` does that), so an
algorithm file holds its algorithm and nothing else. Policies do not import each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from swell.core.decision import Grant, Reason, ReasonCode
from swell.core.ids import JobId
from swell.core.snapshot import Capacity, JobView


class Purse:
    """What is left to give in one decision, by GPU type. Exact whole numbers (thousandths of a GPU)."""

    def __init__(self, capacity: Capacity) -> None:
        self.milli: dict[str, int] = dict(capacity.gpu_milli)

    def fits(self, job: JobView, n: int, gpu_type: str) -> bool:
        return n * job.gpu_milli <= self.milli.get(gpu_type, 0) or job.gpu_milli == 0

    def best_type(self, job: JobView, n: int) -> str | None:
        """The type on which the job is fastest with n, among those that have room; its current one on ties."""
        if job.gpu_milli == 0:
            return ""
        best: str | None = None
        best_speed = -1.0
        for gpu_type in types_of(job):
            if self.fits(job, n, gpu_type):
                speed = speed_at(job, n, gpu_type)
                if speed > best_speed * (1 + 1e-9):
                    best, best_speed = gpu_type, speed
        return best

    def take(self, job: JobView, n: int, gpu_type: str) -> None:
        if job.gpu_milli:
            self.milli[gpu_type] -= n * job.gpu_milli

    def free_gpus(self) -> int:
        return sum(milli // 1000 for milli in self.milli.values())


def types_of(job: JobView) -> tuple[str, ...]:
    """Types to try, the one it runs on first: staying is free."""
    held = job.allocation.gpu_type if job.allocation else ""
    if held and held in job.gpu_types:
        return (held, *(t for t in job.gpu_types if t != held))
    return job.gpu_types


def speed_at(job: JobView, n: int, gpu_type: str) -> float:
    curve = job.curve(gpu_type)
    return curve[min(n, len(curve) - 1)]


def next_size(job: JobView, n: int) -> int | None:
    """The next allowed size above n."""
    for size in job.sizes:
        if size > n:
            return size
    return None


def no_room(job: JobView, purse: Purse) -> Reason:
    free = max((purse.milli.get(t, 0) for t in job.gpu_types), default=0) // 1000
    return Reason(code=ReasonCode.CAPACITY, detail={"needs": job.min, "free": free})


def give_in_order(
    order: Iterable[JobView], purse: Purse, *, requested: bool
) -> tuple[dict[JobId, Grant], dict[JobId, tuple[Reason, ...]]]:
    """Walk jobs in order and give each its requested size (or its minimum) if there is room, else pass it over."""
    grants: dict[JobId, Grant] = {}
    reasons: dict[JobId, tuple[Reason, ...]] = {}
    for job in order:
        n = job.requested if requested else job.min
        gpu_type = purse.best_type(job, n)
        if gpu_type is None:
            reasons[job.id] = (no_room(job, purse),)
            continue
        purse.take(job, n, gpu_type)
        grants[job.id] = Grant(n=n, gpu_type=gpu_type)
    return grants, reasons


def grow_in_turn(order: list[JobView], grants: dict[JobId, Grant], purse: Purse) -> None:
    """Sweep admitted jobs in order, one size up each, until no GPU is free or nobody gains."""
    growing = [job for job in order if job.id in grants and job.gpu_milli]
    while growing:
        still: list[JobView] = []
        for job in growing:
            grant = grants[job.id]
            size = next_size(job, grant.n)
            if size is None or not purse.fits(job, size - grant.n, grant.gpu_type):
                continue
            if speed_at(job, size, grant.gpu_type) <= speed_at(job, grant.n, grant.gpu_type):
                continue
            purse.take(job, size - grant.n, grant.gpu_type)
            grants[job.id] = Grant(n=size, gpu_type=grant.gpu_type)
            still.append(job)
        growing = still


Memory = Mapping[str, object]
