"""What holds for every policy, so that none has to do it: runs that keep what they have, and priority classes.

Order: runs that may not be stopped, and runs that changed a moment ago, keep exactly what they hold; then each priority
class, highest first, is decided by the policy on what is left.
"""

from __future__ import annotations

from dataclasses import replace

from swell.core.decision import Decision, Grant, Reason, ReasonCode
from swell.core.ids import JobId
from swell.core.snapshot import Capacity, JobView, Snapshot
from swell.policy.base import Memory
from swell.ports import Policy, Random


def decide(policy: Policy, snapshot: Snapshot, memory: Memory, rng: Random) -> Decision:
    grants: dict[JobId, Grant] = {}
    reasons: dict[JobId, tuple[Reason, ...]] = {}
    top_waiting = max((job.priority for job in snapshot.jobs if not job.held_n), default=None)
    milli = dict(snapshot.capacity.gpu_milli)
    free: list[JobView] = []
    for job in snapshot.jobs:
        reason = _keeps(job, snapshot, top_waiting)
        if reason is None:
            free.append(job)
            continue
        grant = _held(job)
        grants[job.id] = grant
        reasons[job.id] = (reason,)
        milli[grant.gpu_type] = milli.get(grant.gpu_type, 0) - grant.n * job.gpu_milli
    for priority in sorted({job.priority for job in free}, reverse=True):
        jobs = tuple(job for job in free if job.priority == priority)
        capacity = _left(snapshot.capacity, milli)
        part = policy.decide(snapshot.restricted(jobs, capacity), memory, rng)
        memory = part.memory
        reasons.update(part.reasons)
        for job in jobs:
            if (given := part.grants.get(job.id)) is not None:
                grants[job.id] = given
                milli[given.gpu_type] = milli.get(given.gpu_type, 0) - given.n * job.gpu_milli
    return Decision(grants=grants, reasons=reasons, memory=memory)


def _keeps(job: JobView, snapshot: Snapshot, top_waiting: int | None) -> Reason | None:
    if not job.held_n or job.stopping:
        return None
    if job.pinned:
        return Reason(code=ReasonCode.PINNED)
    until_s = job.changed_s + snapshot.options.min_run_s
    outranked = top_waiting is not None and top_waiting > job.priority
    if snapshot.now_s < until_s and not outranked:
        return Reason(code=ReasonCode.SETTLING, detail={"until_s": until_s})
    return None


def _held(job: JobView) -> Grant:
    return Grant(n=job.held_n, gpu_type=job.allocation.gpu_type if job.allocation else "")


def _left(capacity: Capacity, milli: dict[str, int]) -> Capacity:
    return replace(capacity, gpu_milli={t: max(0, milli.get(t, 0)) for t in capacity.gpu_milli})
