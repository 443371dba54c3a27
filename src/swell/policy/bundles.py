"""What a job takes beside GPUs: CPUs and memory of its processes, in the cluster as a whole.

Whether they fit on one node is the placer's question. An amount of which the cluster has none (0) is not accounted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass

from swell.core.capacity import processes_of
from swell.core.decision import Grant
from swell.core.ids import JobId
from swell.core.snapshot import Capacity, JobView
from swell.policy.base import Purse, grant


@dataclass(frozen=True, slots=True, kw_only=True)
class Less:
    """A job that is to have n instead of what it was given; 0: nothing."""

    job: JobView
    n: int


class Stock(Purse):
    """A purse that also counts CPUs and memory."""

    __slots__ = ("cpus", "memory_mib")

    def __init__(self, capacity: Capacity, milli: dict[str, int] | None = None) -> None:
        super().__init__(capacity)
        if milli is not None:
            self.milli = milli  # shared with the purse it stands in for
        self.cpus = float(capacity.cpus or "inf")
        self.memory_mib = float(capacity.memory_mib or "inf")

    def without(self, jobs: Iterable[JobView], grants: Mapping[JobId, Grant]) -> Stock:
        """Less what these jobs were given beside their GPUs."""
        for job in jobs:
            given = grants.get(job.id)
            if given is not None:
                count = processes_of(job.spec, given.n)
                self.cpus -= count * job.spec.cpus
                self.memory_mib -= count * job.spec.memory_mib
        return self

    def after(self, returns: Iterable[Less], grants: Mapping[JobId, Grant]) -> Stock:
        """A stock of its own, with what these jobs give back."""
        more = copy(self)
        more.milli = dict(self.milli)
        for less in returns:
            job, given = less.job, grants[less.job.id]
            more.take(job, less.n - given.n, given.gpu_type)
            count = processes_of(job.spec, given.n) - (processes_of(job.spec, less.n) if less.n else 0)
            more.cpus += count * job.spec.cpus
            more.memory_mib += count * job.spec.memory_mib
        return more

    def admit(self, job: JobView, n: int) -> Grant | None:
        """Take what the job needs for its first n, if it is there."""
        gpu_type = self.best_type(job, n)
        if gpu_type is None:
            return None
        given = grant(n, gpu_type)
        return given if self.start(job, given) else None

    def start(self, job: JobView, given: Grant) -> bool:
        """Take what a job without anything needs for this grant, if it is there."""
        if not self.fits(job, given.n, given.gpu_type) or not self._spend(job, processes_of(job.spec, given.n)):
            return False
        self.take(job, given.n, given.gpu_type)
        return True

    def grow(self, job: JobView, given: Grant, n: int) -> bool:
        if not self.fits(job, n - given.n, given.gpu_type):
            return False
        if not self._spend(job, processes_of(job.spec, n) - processes_of(job.spec, given.n)):
            return False
        self.take(job, n - given.n, given.gpu_type)
        return True

    def _spend(self, job: JobView, count: int) -> bool:
        cpus, memory_mib = count * job.spec.cpus, count * job.spec.memory_mib
        if cpus > self.cpus or memory_mib > self.memory_mib:
            return False
        self.cpus -= cpus
        self.memory_mib -= memory_mib
        return True
