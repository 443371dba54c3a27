"""Why a job got what it got under `swell`, as reasons a person can be told."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from swell.core.decision import Reason, ReasonCode
from swell.core.evolve import maker
from swell.core.ids import JobId
from swell.core.resources import GPU_MILLI
from swell.core.snapshot import JobView
from swell.policy._envelope import Floats, Ints
from swell.policy._reader import Columns
from swell.policy.base import OwnReasons

_make_reason = maker(Reason)


def of_waiting(jobs: list[JobView], columns: Columns, kind: Ints, worth: Floats, left: list[int]) -> OwnReasons:
    """Who comes first, and what is free meanwhile."""
    waiting = (kind < 0).nonzero()[0]
    granted = (kind >= 0).nonzero()[0]
    by_worth = waiting[(-worth[waiting]).argsort(kind="stable")]
    first = jobs[int(granted[worth[granted].argmax()])].id if len(granted) else None
    reasons: OwnReasons = {}
    rooms: dict[tuple[int, tuple[str, ...]], int] = {}
    for ahead, index in enumerate(by_worth.tolist(), start=len(granted)):
        job = jobs[index]
        needs = job.sizes[0]
        free = rooms.get((needs, job.gpu_types))
        if free is None:
            free = rooms[needs, job.gpu_types] = _free(job, columns, left)
        reasons[job.id] = (_room(needs, free),) if first is None else _behind(ahead, first, needs, free)
    return reasons


def _free(job: JobView, columns: Columns, left: list[int]) -> int:
    """GPUs of the type it may use of which most are left. Types that are used up before the policy is asked are not
    among the columns; that a cluster has none of its types is what the layers say."""
    usable = [milli for gpu_type, milli in zip(columns.types, left, strict=True) if gpu_type in job.gpu_types]
    return max(usable, default=0) // GPU_MILLI


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
            detail = {"cost_s": float(columns.restart_s[index]), "gain_s": gain_s}
            reasons[jobs[index].id] = (Reason(code=ReasonCode.NOT_WORTH, detail=detail),)
    return reasons
