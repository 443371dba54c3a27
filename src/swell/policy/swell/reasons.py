"""Why a job got what it got, as reasons that `plan.explain` turns into sentences.

`vectorised.Round` calls these, only when somebody asks. They read a finished round and decide nothing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from swell.core.decision import Reason, ReasonCode
from swell.core.evolve import maker
from swell.core.ids import JobId
from swell.core.resources import GPU_MILLI
from swell.core.snapshot import JobView
from swell.policy._envelope import Floats, Ints
from swell.policy.base import OwnReasons, not_worth
from swell.policy.swell.columns import Columns

_make_reason = maker(Reason)


def of_waiting(jobs: list[JobView], columns: Columns, kind: Ints, worth: Floats, left: list[int]) -> OwnReasons:
    """Who comes first, and what is free meanwhile."""
    waiting = (kind < 0).nonzero()[0]
    by_worth = [jobs[index] for index in waiting[(-worth[waiting]).argsort(kind="stable")].tolist()]
    holders = [_holders(at, kind, worth) for at in range(len(columns.types))]
    queues = {types: _queue(types, jobs, columns, holders, left) for types in {job.gpu_types: None for job in by_worth}}
    met = {types: [queue for other, queue in queues.items() if not set(other).isdisjoint(types)] for types in queues}
    reasons: OwnReasons = {}
    for job in by_worth:
        queue, needs = queues[job.gpu_types], job.sizes[0]
        first, free = queue.first, queue.free
        reasons[job.id] = (_room(needs, free),) if first is None else _behind(queue.ahead, first, needs, free)
        for other in met[job.gpu_types]:
            other.ahead += 1
    return reasons


@dataclass(slots=True, kw_only=True)
class _Queue:
    """Of jobs that may use the same GPU types. Only jobs that have, or wait for, one of these come before them."""

    ahead: int
    first: JobId | None  # that weighs most among those that have some
    free: int  # GPUs of the type of which most are left


def _holders(at: int, kind: Ints, worth: Floats) -> tuple[int, float, int]:
    """Of one GPU type: how many jobs have some; what the one that weighs most weighs, and its row."""
    rows = (kind == at).nonzero()[0]
    if not len(rows):
        return 0, -np.inf, 0
    best = int(rows[worth[rows].argmax()])
    return len(rows), float(worth[best]), best


def _queue(
    types: tuple[str, ...],
    jobs: list[JobView],
    columns: Columns,
    holders: list[tuple[int, float, int]],
    left: list[int],
) -> _Queue:
    """Types that are used up before the policy is asked are not among the columns; that a cluster has none of the
    types of a job is what the layers say."""
    usable = [at for at, gpu_type in enumerate(columns.types) if gpu_type in types]
    _, worth, row = max((holders[at] for at in usable), key=lambda of: (of[1], -of[2]), default=(0, -np.inf, 0))
    return _Queue(
        ahead=sum(holders[at][0] for at in usable),
        first=jobs[row].id if worth > -np.inf else None,
        free=max((left[at] for at in usable), default=0) // GPU_MILLI,
    )


@lru_cache(maxsize=1 << 14)
def _behind(ahead: int, first: JobId, needs: int, free: int) -> tuple[Reason, ...]:
    """Reasons are frozen, so equal ones are one object, also from decision to decision."""
    return (_make_reason(code=ReasonCode.BEHIND, detail={"ahead": ahead, "first": first}), _room(needs, free))


@lru_cache(maxsize=1 << 10)
def _room(needs: int, free: int) -> Reason:
    return Reason(code=ReasonCode.CAPACITY, detail={"needs": needs, "free": free})


def of_running(
    jobs: list[JobView],
    columns: Columns,
    given: tuple[Ints, Ints],
    worth: Floats,
    prices: Floats,
    left_s: Floats,
    now_s: float,
) -> OwnReasons:
    """More would bring nothing; or a change would bring less than its restart costs."""
    n, kind = given
    reasons: OwnReasons = {}
    no_gain: dict[int, tuple[Reason, ...]] = {}
    for at in range(len(columns.types)):
        rows = (kind == at).nonzero()[0]
        sizes, speeds = columns.sizes[at][rows], columns.speeds[at][rows]
        full = (n[rows] >= sizes[:, -1]) & (n[rows] < columns.top_size[rows])
        for index in rows[full].tolist():
            size = int(n[index])
            if size not in no_gain:
                no_gain[size] = (Reason(code=ReasonCode.NO_GAIN, detail={"at": size}),)
            reasons[jobs[index].id] = no_gain[size]
        value = worth[rows, None] * speeds - prices[at] * sizes * columns.milli[rows, None]
        best = value.argmax(axis=1)
        better = speeds[np.arange(len(rows)), best]
        stays = (columns.held[rows] == n[rows]) & (columns.held_kind[rows] == at) & ~full
        unwanted = stays & (better > columns.held_speed[rows] * 1.0001) & (columns.held_speed[rows] > 0)
        for index, speed in zip(rows[unwanted].tolist(), better[unwanted].tolist(), strict=True):
            gain_s = float(left_s[index] / columns.held_speed[index] - left_s[index] / speed)
            reasons[jobs[index].id] = (not_worth(jobs[index], gain_s, now_s),)
    return reasons
