"""What every policy stands on: the protocol is `swell.ports.Policy`; here are the few things they all need.

A policy sees one priority class at a time, without the jobs that keep what they have (`policy.layers` does that), so an
algorithm file holds its algorithm and nothing else. Policies do not import each other.

What a policy wants to find again about a job goes into `memory["jobs"][str(job id)]` (see `remember`); the layers
drop it when the job is gone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from heapq import heapify, heappop, heapreplace
from operator import attrgetter, itemgetter

from swell.core.decision import Detail, Explain, Grant, Reason, ReasonCode
from swell.core.ids import JobId
from swell.core.resources import GPU_MILLI
from swell.core.snapshot import Capacity, Curve, JobView, Snapshot

Memory = Mapping[str, object]
OwnReasons = dict[JobId, tuple[Reason, ...]]
"""Reasons in the making."""

GAIN = 1 + 1e-9
"""Faster by less than this factor is not faster: it is rounding."""
MAX_LADDERS = 50_000


@lru_cache(maxsize=1 << 16)
def grant(n: int, gpu_type: str) -> Grant:
    """Grants are frozen, so equal ones are one object: thousands are handed out in a decision."""
    return Grant(n=n, gpu_type=gpu_type)


def apart(snapshot: Snapshot) -> tuple[dict[JobId, Grant], list[JobView]]:
    """Grants of the jobs that need no GPU, of which there is enough for all; and the other jobs."""
    jobs = [job for job in snapshot.jobs if job.gpu_milli]
    if len(jobs) == len(snapshot.jobs):
        return {}, jobs
    return {job.id: grant(1, "") for job in snapshot.jobs if not job.gpu_milli}, jobs


class Purse:
    """What is left to give in one decision, by GPU type. Exact whole numbers (thousandths of a GPU)."""

    __slots__ = ("_reasons", "milli")

    def __init__(self, capacity: Capacity) -> None:
        self.milli: dict[str, int] = dict(capacity.gpu_milli)
        self._reasons: dict[tuple[int, int], tuple[Reason, ...]] = {}

    def copy(self) -> Purse:
        return Purse(Capacity(gpu_milli=self.milli))

    def fits(self, job: JobView, n: int, gpu_type: str) -> bool:
        return n * job.gpu_milli <= self.milli.get(gpu_type, 0) or job.gpu_milli == 0

    def best_type(self, job: JobView, n: int) -> str | None:
        """The type on which the job is fastest with n, among those that have room; its current one on ties."""
        if job.gpu_milli == 0:
            return ""
        need = n * job.gpu_milli
        types = job.gpu_types
        if len(types) == 1:
            return types[0] if need <= self.milli.get(types[0], 0) else None
        best: str | None = None
        best_speed = 0.0  # a type on which it does not get on at all is none
        for gpu_type in types_of(job):
            if need <= self.milli.get(gpu_type, 0):
                speed = speed_at(job, n, gpu_type)
                if speed > best_speed * GAIN:
                    best, best_speed = gpu_type, speed
        return best

    def take(self, job: JobView, n: int, gpu_type: str) -> None:
        if job.gpu_milli:
            self.milli[gpu_type] -= n * job.gpu_milli

    def grow(self, job: JobView, given: Grant, n: int) -> bool:
        """Take what brings the job from its grant to n, if it is there."""
        need = (n - given.n) * job.gpu_milli
        if need > self.milli.get(given.gpu_type, 0):
            return False
        self.milli[given.gpu_type] -= need
        return True

    def free_gpus(self) -> int:
        return sum(milli // GPU_MILLI for milli in self.milli.values())

    def no_room(self, job: JobView, needs: int) -> tuple[Reason, ...]:
        """Why a job is passed over. Shared by all jobs of which the same is true."""
        if not job.gpu_milli:
            return (Reason(code=ReasonCode.MEMORY),)
        types = job.gpu_types
        if len(types) == 1:
            free = self.milli.get(types[0], 0) // GPU_MILLI
        else:
            free = max((self.milli.get(t, 0) for t in types), default=0) // GPU_MILLI
        reasons = self._reasons.get((needs, free))
        if reasons is None:
            reasons = (Reason(code=ReasonCode.CAPACITY, detail={"needs": needs, "free": free}),)
            self._reasons[needs, free] = reasons
        return reasons


def not_worth(job: JobView, gain_s: float, now_s: float) -> Reason:
    """A change of a running job would save it this much, and cost its restart and what the stop waits for."""
    detail: dict[str, Detail] = {"cost_s": round(job.restart_cost_s, 1), "gain_s": round(gain_s, 1)}
    if (wait_s := job.stop_cost_s(now_s) - job.restart_cost_s) > 0.0:
        detail["wait_s"] = round(wait_s, 1)
    return Reason(code=ReasonCode.NOT_WORTH, detail=detail)


def types_of(job: JobView) -> tuple[str, ...]:
    """Types to try, the one it runs on first: staying is free."""
    held = job.allocation.gpu_type if job.allocation else ""
    if held and held in job.gpu_types:
        return (held, *(t for t in job.gpu_types if t != held))
    return job.gpu_types


def speed_at(job: JobView, n: int, gpu_type: str) -> float:
    curve = job.curve(gpu_type)
    return curve[n] if n < len(curve) else curve[-1]


def best_speed(job: JobView, n: int) -> float:
    """Speed with n on the type where that is most; 1 for a job that needs no GPU. Never zero."""
    if not job.gpu_milli or not job.gpu_types:
        return 1.0
    types = job.gpu_types
    if len(types) == 1:
        return speed_at(job, n, types[0]) or 1e-9
    return max(speed_at(job, n, gpu_type) for gpu_type in types) or 1e-9


class Ladder:
    """The sizes of a job that bring anything: each rung is faster than the one below; sizes between are no use.

    The first rung is the smallest size. Made once for all jobs that share a curve and a range.
    """

    __slots__ = ("curve", "sizes", "speeds")

    def __init__(self, curve: Curve, sizes: Sequence[int]) -> None:
        self.curve = curve  # kept alive: its identity is the key of the cache
        last = len(curve) - 1
        self.sizes: list[int] = []
        self.speeds: list[float] = []
        best = -1.0
        for size in sizes:
            speed = curve[size if size < last else last]
            if speed > best * GAIN or not self.sizes:
                self.sizes.append(size)
                self.speeds.append(speed)
                best = speed

    def above(self, n: int) -> int:
        """Index of the first rung above n; `len(sizes)` when there is none."""
        return bisect_right(self.sizes, n)


_ladders: dict[tuple[int, tuple[int, ...]], Ladder] = {}


def ladder(job: JobView, gpu_type: str) -> Ladder:
    """The job's rungs on a GPU type. Cached by the identity of the curve, which a ladder keeps alive."""
    curve = job.speed.curve(gpu_type)
    key = (id(curve), job.sizes)
    found = _ladders.get(key)
    if found is None:
        if len(_ladders) >= MAX_LADDERS:
            _ladders.clear()
        found = _ladders[key] = Ladder(curve, job.sizes)
    return found


def shortest_first(jobs: Iterable[JobView], now_s: float) -> list[JobView]:
    """By remaining time at the requested size; ties stay in order of submission."""
    keyed = [(job.remaining_s(now_s) / best_speed(job, job.requested), job) for job in jobs]
    keyed.sort(key=itemgetter(0))
    return [job for _, job in keyed]


_milli, _requested, _sizes, _first = (
    attrgetter("gpu_milli"),
    attrgetter("requested"),
    attrgetter("sizes"),
    itemgetter(0),
)


def give_in_order(jobs: Iterable[JobView], purse: Purse, *, requested: bool) -> tuple[dict[JobId, Grant], Explain]:
    """Walk jobs in order and give each its requested size (or its minimum) if there is room, else pass it over. Returns
    the grants, and what makes the reasons of those passed over."""
    order = tuple(jobs)
    grants: dict[JobId, Grant] = {}
    reasons: OwnReasons = {}
    refused: dict[tuple[int, int, tuple[str, ...]], tuple[Reason, ...]] = {}  # the same again until more is taken
    least = _least(order, requested=requested)
    for at, job in enumerate(order):
        n = job.requested if requested else job.sizes[0]
        wants = (n, job.gpu_milli, job.gpu_types)
        why = refused.get(wants)
        if why is None:
            gpu_type = purse.best_type(job, n)
            if gpu_type is not None:
                purse.take(job, n, gpu_type)
                grants[job.id] = grant(n, gpu_type)
                refused.clear()
                continue
            if max(purse.milli.values(), default=0) < least:  # nor for anybody after it
                return grants, partial(_refused, order[at:], purse.copy(), reasons, requested=requested)
            why = purse.no_room(job, n)
            if len(job.gpu_types) < 2:  # with several it also depends on how fast the job is on each
                refused[wants] = why
        reasons[job.id] = why
    return grants, lambda: reasons


def _least(order: Sequence[JobView], *, requested: bool) -> int:
    """No job needs less than this, in thousandths of a GPU."""
    sizes = map(_requested, order) if requested else map(_first, map(_sizes, order))
    return min(sizes, default=0) * min(map(_milli, order), default=0)


def _refused(rest: Sequence[JobView], purse: Purse, before: OwnReasons, *, requested: bool) -> OwnReasons:
    """The reasons of those passed over before, and of the rest."""
    return before | {job.id: purse.no_room(job, job.requested if requested else job.sizes[0]) for job in rest}


def grow_in_turn(order: Iterable[JobView], grants: dict[JobId, Grant], purse: Purse) -> None:
    """Sweep admitted jobs in order, one size up each, until no GPU is free or no job gains."""
    if not purse.free_gpus():
        return
    milli = purse.milli
    growing: list[tuple[JobView, str, Ladder, int]] = []
    for job in order:
        given = grants.get(job.id)
        if given is not None and job.gpu_milli and given.n < job.sizes[-1]:
            rungs = ladder(job, given.gpu_type)
            growing.append((job, given.gpu_type, rungs, rungs.above(given.n)))
    while growing:
        still: list[tuple[JobView, str, Ladder, int]] = []
        for job, gpu_type, rungs, index in growing:
            if index >= len(rungs.sizes):
                continue
            size = rungs.sizes[index]
            need = (size - grants[job.id].n) * job.gpu_milli
            if need <= milli[gpu_type]:
                milli[gpu_type] -= need
                grants[job.id] = grant(size, gpu_type)
                still.append((job, gpu_type, rungs, index + 1))
        growing = still


Gain = Callable[[JobView, float, float, int], float]
"""What a step is worth: (job, speed before, speed after, GPUs added) -> value."""


First = Callable[[JobView, Grant, Ladder], int]
"""Which rung a job would go to first from what it was given; the next one if unset."""


def grow_best_first(
    order: Iterable[JobView], grants: dict[JobId, Grant], purse: Purse, gain: Gain, first: First | None = None
) -> None:
    """Step by step to the job that gains most (ties: earlier in `order`), until no GPU is free or no job gains."""
    if not purse.free_gpus():
        return
    heap: list[tuple[float, int, JobView, Ladder, int]] = []
    for place, job in enumerate(order):
        given = grants.get(job.id)
        if given is None or not job.gpu_milli or given.n >= job.sizes[-1]:
            continue
        rungs = ladder(job, given.gpu_type)
        index = first(job, given, rungs) if first else rungs.above(given.n)
        if index < len(rungs.sizes):
            speed = speed_at(job, given.n, given.gpu_type)
            worth = gain(job, speed, rungs.speeds[index], rungs.sizes[index] - given.n)
            heap.append((-worth, place, job, rungs, index))
    heapify(heap)
    while heap:
        minus, place, job, rungs, index = heap[0]
        given = grants[job.id]
        if minus >= 0.0 or not purse.grow(job, given, rungs.sizes[index]):
            heappop(heap)
            continue
        grants[job.id] = grant(rungs.sizes[index], given.gpu_type)
        if index + 1 < len(rungs.sizes):
            step = rungs.sizes[index + 1] - rungs.sizes[index]
            worth = gain(job, rungs.speeds[index], rungs.speeds[index + 1], step)
            heapreplace(heap, (-worth, place, job, rungs, index + 1))
        else:
            heappop(heap)


def recall(memory: Memory, job: JobId) -> Mapping[str, float]:
    """What was remembered of a job; empty when nothing was."""
    jobs = memory.get("jobs")
    found = jobs.get(str(job)) if isinstance(jobs, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def remember(memory: Memory, news: Mapping[JobId, Mapping[str, float]]) -> Memory:
    """Memory with these jobs' entries replaced; the same object when there is nothing new."""
    if not news:
        return memory
    jobs = memory.get("jobs")
    kept = dict(jobs) if isinstance(jobs, Mapping) else {}
    kept.update({str(job): dict(entry) for job, entry in news.items()})
    return {**memory, "jobs": kept}
