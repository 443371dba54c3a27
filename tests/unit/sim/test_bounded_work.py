"""The work of a forecast of very many jobs is bounded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from swell.core.state import State
from swell.sim.forecast import FAR_JOBS, LOOKS, ROUND, Expected, _Enough, _interval_s, _Looks

MANY = FAR_JOBS + 1


def state_of(jobs: int) -> State:
    return State(active=dict.fromkeys(range(jobs)))


def test_a_sample_looks_as_often_as_it_may_and_not_once_more() -> None:
    looks = _Looks(state_of(3), most=6)
    looks.at(0.0)
    looks.at(1.0)
    with pytest.raises(_Enough):
        looks.at(2.0)


def test_a_sample_of_fewer_jobs_looks_until_all_have_ended() -> None:
    looks = _Looks(state_of(3), most=None)
    for now_s in range(1000):
        looks.at(float(now_s))


@pytest.mark.parametrize(("mean_s", "interval_s"), [(0.0, 1.0), (30.0, 30.0 * ROUND), (7200.0, 7200.0 * ROUND)])
def test_rounds_are_a_part_of_what_a_job_takes_and_at_least_a_second(mean_s: float, interval_s: float) -> None:
    world = cast(Expected, SimpleNamespace(total_1_s=lambda _: mean_s * MANY))
    assert _interval_s(state_of(MANY), world) == pytest.approx(interval_s)


def test_each_event_is_decided_on_while_that_takes_no_more_looks() -> None:
    most = next(jobs for jobs in range(FAR_JOBS, 0, -1) if 4 * jobs <= LOOKS // jobs)
    assert _interval_s(state_of(most), cast(Expected, None)) == 0.0
