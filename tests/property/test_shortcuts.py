"""Shortcuts that policies take where nothing is to be weighed: what they answer is what the long way would."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from swell.core.decision import Decision, Grant, Reason
from swell.core.ids import JobId
from swell.core.snapshot import Capacity, JobView, Snapshot
from swell.policy.base import Purse, give_in_order, grant
from swell.policy.swell import Swell
from swell.policy.swell.columns import Reader
from swell.policy.swell.settings import settings_of
from swell.policy.swell.vectorised import Round
from unit.policy.strategies import EXAMPLES, MARKS
from unit.policy.views import NOW_S, view

pytestmark = MARKS


@st.composite
def jobs_of_one_type(draw: st.DrawFn) -> list[JobView]:
    """Of one size each, or at the largest of theirs."""
    found = []
    for number in range(1, draw(st.integers(1, 6)) + 1):
        high = draw(st.integers(1, 4))
        low = draw(st.sampled_from([high, 1]))
        runs = draw(st.booleans()) or low < high
        milli = draw(st.sampled_from([1000, 1000, 300])) if high == 1 else 1000
        found.append(view(number, low, high, held=high * runs, milli=milli, rem=draw(st.sampled_from([1.0, 1e5]))))
    return found


@EXAMPLES
@given(jobs=jobs_of_one_type(), more=st.integers(0, 4))
def test_where_there_is_room_for_all_swell_answers_as_if_it_had_weighed_everything(
    jobs: list[JobView], more: int
) -> None:
    gpus = -(-sum(job.max * job.gpu_milli for job in jobs) // 1000) + more
    taken = Snapshot(now_s=NOW_S, jobs=tuple(jobs), nodes=(), capacity=Capacity(gpu_milli={"gpu": 1000 * gpus}))
    short = Swell().decide(taken, {}, random.Random(0))
    assert short.grants == {job.id: Grant(n=job.max, gpu_type="gpu") for job in jobs}
    assert (short.grants, short.why()) == _weighed(taken)


def _weighed(taken: Snapshot) -> tuple[dict[JobId, Grant], dict[JobId, tuple[Reason, ...]]]:
    columns = Reader().read(list(taken.jobs), taken)
    assert columns is not None
    this = Round(list(taken.jobs), columns, taken.now_s, settings_of(taken))
    this.give()
    this.use_leftovers()
    return this.grants(), this.reasons()


TYPES = (("a",), ("b",), ("a", "b"), ())


@EXAMPLES
@given(
    wanted=st.lists(st.tuples(st.integers(1, 6), st.sampled_from(TYPES), st.sampled_from([1000, 1000, 250, 0]))),
    left=st.tuples(st.integers(0, 12), st.integers(0, 12)),
    requested=st.booleans(),
)
def test_those_after_the_last_that_could_fit_are_told_what_they_would_have_been(
    wanted: list[tuple[int, tuple[str, ...], int]], left: tuple[int, int], requested: bool
) -> None:
    capacity = Capacity(gpu_milli={"a": 1000 * left[0], "b": 1000 * left[1]})
    jobs = [
        view(number, 1 if milli != 1000 else size, 6 if milli == 1000 else 1, types=types, milli=milli)
        for number, (size, types, milli) in enumerate(wanted, start=1)
    ]
    purse = Purse(capacity)
    grants, explain = give_in_order(iter(jobs), purse, requested=requested)
    reasons = explain()
    purse.milli.clear()  # what is taken later changes nothing about what was said
    assert Decision(grants=grants, reasons=dict(reasons)) == _one_by_one(jobs, Purse(capacity), requested=requested)


def _one_by_one(jobs: list[JobView], purse: Purse, *, requested: bool) -> Decision:
    grants: dict[JobId, Grant] = {}
    reasons: dict[JobId, tuple[Reason, ...]] = {}
    for job in jobs:
        n = job.requested if requested else job.min
        gpu_type = purse.best_type(job, n)
        if gpu_type is None:
            reasons[job.id] = purse.no_room(job, n)
        else:
            purse.take(job, n, gpu_type)
            grants[job.id] = grant(n, gpu_type)
    return Decision(grants=grants, reasons=reasons)
