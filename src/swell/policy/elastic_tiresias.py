"""Elastic Tiresias: Tiresias whose lower queues make room for those that wait, and whose leftovers go to who gains
most.

1. Walk the queues as Tiresias does, giving requested sizes.
2. Compaction: if more than N jobs still wait, jobs below the top queue shrink to their minimum, lowest queue and
   latest first, only as far as that admits waiting jobs, which get their minimum in the order of the queues.
3. Leftovers, step by step, by largest gain per GPU: S(n+1) - S(n) for an admitted job, S(min)/min for a waiting one,
   ties in the order of the queues, until no GPU is free or no gain is positive.

O(jobs log jobs + GPUs log jobs). (Wu et al., Elastic deep learning in multi-tenant GPU clusters, TPDS 2021.)
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace

from swell.core.decision import Decision, Grant
from swell.core.ids import JobId
from swell.core.snapshot import JobView, Snapshot
from swell.policy.base import Memory, OwnReasons, Purse, give_in_order, grant, ladder, speed_at
from swell.policy.options import Option, Options, number
from swell.policy.queues import OPTIONS as QUEUE_OPTIONS
from swell.policy.queues import in_queues
from swell.ports import Random

Grants = dict[JobId, Grant]
Queued = list[tuple[int, JobView]]

OPTIONS: Options = {
    **QUEUE_OPTIONS,
    "compaction": Option(default=10, low=0, doc="when more jobs than this wait, lower queues shrink to admit them"),
}


class ElasticTiresias:
    name = "elastic-tiresias"
    elastic = True
    weighs_restarts = False
    OPTIONS = OPTIONS

    def decide(self, snapshot: Snapshot, memory: Memory, rng: Random) -> Decision:
        queued, memory = in_queues(snapshot, memory)
        purse = Purse(snapshot.capacity)
        order = [job for _, job in queued]
        grants, explain = give_in_order(order, purse, requested=True)
        reasons = dict(explain())
        if len(reasons) > number(snapshot, OPTIONS, "compaction"):
            _compact(queued, grants, reasons, purse)
        _give_leftovers(order, grants, reasons, purse)
        return Decision(grants=grants, reasons=reasons, memory=memory)


def _compact(queued: Queued, grants: Grants, reasons: OwnReasons, purse: Purse) -> None:
    """Let waiting jobs in at their minimum, taking what lower queues have above theirs, last ones first."""
    spare: dict[str, int] = {}
    donors: dict[str, list[JobView]] = {}
    for queue, job in queued:
        given = grants.get(job.id)
        if queue and given is not None and given.n > job.sizes[0]:
            donors.setdefault(given.gpu_type, []).append(job)
            spare[given.gpu_type] = spare.get(given.gpu_type, 0) + (given.n - job.sizes[0]) * job.gpu_milli
    if not spare:
        return
    for _, job in queued:
        if job.id in grants:
            continue
        need = job.sizes[0] * job.gpu_milli
        for gpu_type in job.gpu_types:
            if need <= purse.milli.get(gpu_type, 0) + spare.get(gpu_type, 0):
                _shrink(donors.get(gpu_type, []), gpu_type, need, grants, purse, spare)
                purse.milli[gpu_type] -= need
                grants[job.id] = grant(job.sizes[0], gpu_type)
                del reasons[job.id]
                break


def _shrink(
    donors: list[JobView], gpu_type: str, need: int, grants: Grants, purse: Purse, spare: dict[str, int]
) -> None:
    while purse.milli[gpu_type] < need:
        donor = donors.pop()
        freed = (grants[donor.id].n - donor.sizes[0]) * donor.gpu_milli
        grants[donor.id] = grant(donor.sizes[0], gpu_type)
        purse.milli[gpu_type] += freed
        spare[gpu_type] -= freed


Entry = tuple[float, int, int, JobView]
"""(minus gain per GPU, place in the order, size to go to, job)"""


def _give_leftovers(order: list[JobView], grants: Grants, reasons: OwnReasons, purse: Purse) -> None:
    if not any(purse.milli.values()):
        return
    heap: list[Entry] = []
    for place, job in enumerate(order):
        entry = _offer(place, job, grants.get(job.id), purse)
        if entry is not None:
            heap.append(entry)
    heapify(heap)
    while heap:
        _, place, size, job = heap[0]
        given = grants.get(job.id)
        gpu_type = given.gpu_type if given else purse.best_type(job, size)
        more = size - (given.n if given else 0)
        if gpu_type is None or not purse.fits(job, more, gpu_type):
            heappop(heap)
            continue
        purse.take(job, more, gpu_type)
        grants[job.id] = grant(size, gpu_type)
        reasons.pop(job.id, None)
        entry = _offer(place, job, grants[job.id], purse)
        if entry is None:
            heappop(heap)
        else:
            heapreplace(heap, entry)


def _offer(place: int, job: JobView, given: Grant | None, purse: Purse) -> Entry | None:
    """The job's next step and what it gains; None when there is none that gains and fits."""
    if given is None:
        size = job.sizes[0]
        gpu_type = purse.best_type(job, size)
        return None if gpu_type is None else (-speed_at(job, size, gpu_type) / size, place, size, job)
    if not job.gpu_milli or given.n >= job.sizes[-1]:
        return None
    rungs = ladder(job, given.gpu_type)
    index = rungs.above(given.n)
    if index == len(rungs.sizes):
        return None
    size = rungs.sizes[index]
    gain = (rungs.speeds[index] - speed_at(job, given.n, given.gpu_type)) / (size - given.n)
    return (-gain, place, size, job) if gain > 0 else None
