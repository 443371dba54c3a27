"""What has been given so far in one decision: what is left, who has what and why, what each team uses.

The layers write here. Whatever a policy answers, nothing goes into the ledger that a job does not allow or that is not
there: a custom policy cannot oversubscribe the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from swell.core.decision import Decision, Explain, Grant, Reason
from swell.core.ids import JobId
from swell.core.resources import GPU_MILLI
from swell.core.snapshot import Capacity, JobView, Quota, Snapshot
from swell.policy.base import OwnReasons, Purse


class Ledger:
    __slots__ = ("_parts", "grants", "limits", "purse", "quotas", "reasons", "used", "wake_s")

    def __init__(self, snapshot: Snapshot) -> None:
        self.purse = Purse(snapshot.capacity)
        self.grants: dict[JobId, Grant] = {}
        self.reasons: OwnReasons = {}  # the layers' own: they replace those of the policy
        self._parts: list[Explain] = []  # the policy's reasons, one entry per decision it made
        self.wake_s: float | None = None
        self.quotas: Mapping[str, Quota] = snapshot.options.quotas
        self.used: dict[str, int] = {}  # thousandths of a GPU by team; kept only while there are quotas
        self.limits = {team: quota.gpus * GPU_MILLI for team, quota in self.quotas.items() if not quota.borrow}

    def keep(self, job: JobView, given: Grant, milli: int, why: Reason | None) -> None:
        """A job that is left alone, `milli` of whose GPUs are among what there is to give."""
        self.grants[job.id] = given
        if why is not None:
            self.reasons[job.id] = (why,)
        left = self.purse.milli
        if given.gpu_type in left:
            left[given.gpu_type] = max(0, left[given.gpu_type] - milli)
        self.use(job, given.n)

    def give(self, job: JobView, given: Grant) -> bool:
        """Write down a grant if the job allows it and there is room."""
        cost = given.n * job.gpu_milli
        left = self.purse.milli
        if cost > (left.get(given.gpu_type, 0) if cost else 0) or not allows(job, given):
            return False
        if cost:
            left[given.gpu_type] -= cost
        self.grants[job.id] = given
        if self.quotas:
            self.use(job, given.n)
        return True

    def accept(self, jobs: Mapping[JobId, JobView], part: Decision) -> None:
        """Write down what a policy decided for these jobs: those that were submitted first come first."""
        self.note(part)
        grants = part.grants
        for job_id in sorted(grants):
            job = jobs.get(job_id)
            if job is not None and not self.give(job, grants[job_id]):
                self.reasons[job_id] = self.purse.no_room(job, grants[job_id].n)

    def note(self, part: Decision) -> None:
        """Keep the reasons of a policy's decision, and when it wants to be asked again."""
        self._parts.append(cache(part.why))
        self.wake_at(part.wake_s)

    def why(self, job: JobId) -> tuple[Reason, ...]:
        """Reasons for the job's grant so far; empty if there are none."""
        if job in self.reasons:
            return self.reasons[job]
        return next((part()[job] for part in reversed(self._parts) if job in part()), ())

    def said(self) -> OwnReasons:
        """Reasons of all jobs that have any."""
        said: OwnReasons = {}
        for part in self._parts:
            said.update(part())
        return said | self.reasons

    def wake_at(self, at_s: float | None) -> None:
        """Time alone may change the answer then."""
        if at_s is not None and (self.wake_s is None or at_s < self.wake_s):
            self.wake_s = at_s

    def change(self, job: JobView, given: Grant) -> None:
        """Replace what a job was given; the caller knows that it fits."""
        before = self.grants[job.id]
        left = self.purse.milli
        if job.gpu_milli:
            left[before.gpu_type] += before.n * job.gpu_milli
            left[given.gpu_type] -= given.n * job.gpu_milli
        self.grants[job.id] = given
        self.use(job, given.n - before.n)

    def withdraw(self, job: JobView) -> None:
        """Take back all that a job was given."""
        given = self.grants.pop(job.id)
        if job.gpu_milli:
            self.purse.milli[given.gpu_type] += given.n * job.gpu_milli
        self.use(job, -given.n)

    def may_use(self, job: JobView, more: int) -> bool:
        """May the job's team have this many more? Teams that may borrow always may."""
        limit = self.limits.get(job.team)
        return limit is None or self.used.get(job.team, 0) + more * job.gpu_milli <= limit

    def capacity(self, snapshot: Snapshot) -> Capacity:
        whole = snapshot.capacity
        return Capacity(gpu_milli=dict(self.purse.milli), cpus=whole.cpus, memory_mib=whole.memory_mib)

    def use(self, job: JobView, n: int) -> None:
        if self.quotas:
            self.used[job.team] = self.used.get(job.team, 0) + n * job.gpu_milli


def allows(job: JobView, given: Grant) -> bool:
    """Is this a size and a GPU type that the job may have?"""
    sizes = job.sizes
    if job.gpu_milli == 0:
        return given.n == 1 and not given.gpu_type
    if not sizes[0] <= given.n <= sizes[-1] or given.gpu_type not in job.gpu_types:
        return False
    return len(sizes) == sizes[-1] - sizes[0] + 1 or given.n in sizes
