"""Which jobs hold GPUs that they do not use: since when, of what they hold, and what may be done about it."""

from __future__ import annotations

from typing import Any

import pytest

from swell.core import events as ev
from swell.core.idle import IdleRules
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec
from swell.core.lifecycle import apply
from swell.core.resources import Allocation, GpuKey, Part
from swell.core.state import State
from swell.plan.idle import Idle, Remedy, idle_jobs, remedies, smaller

RUN = RunId(1, 1)


def running(*gpus: int, **spec: Any) -> State:
    """Job 1 on these GPUs of machine a, since 100 s."""
    state = State()
    wanted = JobSpec(**{"name": "train", "command": ("x",), "gpus": GpuRequest(max=4), "uses_library": True, **spec})
    apply(state, ev.JobSubmitted(job=1, spec=wanted, at_s=0.0))
    apply(state, ev.RunPlanned(run=RUN, allocation=Allocation(parts=(Part(node="a", gpus=gpus),)), at_s=99.0))
    apply(state, ev.RunStarted(run=RUN, at_s=100.0))
    return state


def quiet(**since: float) -> dict[GpuKey, float]:
    return {("a", int(name[1:])): since_s for name, since_s in since.items()}


def test_gpus_are_idle_since_the_last_of_them_fell_quiet() -> None:
    found = idle_jobs(running(0, 1, 2), quiet(g0=200.0, g1=300.0), 600.0, 1000.0)
    assert found == {1: Idle(job=1, gpus=2, held=3, since_s=300.0)}
    assert found[1].words(1200.0) == "2 of its 3 GPUs have been idle for 15 min"
    assert Idle(job=1, gpus=1, held=1, since_s=0.0).words(30.0) == "its GPU has been idle for 30 s"


def test_a_gpu_counts_only_when_it_was_quiet_for_long_enough() -> None:
    state = running(0, 1)
    assert idle_jobs(state, quiet(g0=200.0, g1=900.0), 600.0, 1000.0)[1].gpus == 1
    assert idle_jobs(state, quiet(g0=401.0), 600.0, 1000.0) == {}
    assert idle_jobs(state, quiet(g0=400.0), 600.0, 1000.0)[1].gpus == 1


def test_what_was_quiet_before_a_run_began_is_not_held_against_it() -> None:
    assert idle_jobs(running(0), quiet(g0=0.0), 950.0, 1000.0) == {}
    assert idle_jobs(running(0), quiet(g0=0.0), 900.0, 1000.0)[1].since_s == 100.0


@pytest.mark.parametrize("after_s", [0.0, 600.0])
def test_nothing_is_said_where_nothing_is_measured_or_nobody_wants_to_know(after_s: float) -> None:
    assert idle_jobs(running(0), {} if after_s else quiet(g0=0.0), after_s, 10_000.0) == {}


def test_a_job_that_opted_out_waits_or_stops_is_not_idle() -> None:
    assert idle_jobs(running(0, may_idle=True), quiet(g0=0.0), 600.0, 10_000.0) == {}
    stopping = running(0)
    apply(stopping, ev.RunStopRequested(run=RUN, why=ev.StopWhy.PAUSED, at_s=200.0))
    assert idle_jobs(stopping, quiet(g0=0.0), 600.0, 10_000.0) == {}


def test_shrink_then_suspend_each_after_its_own_time() -> None:
    rules, state = IdleRules(shrink_after_s=600.0, suspend_after_s=1200.0), running(0, 1)
    half, all_of_them = quiet(g0=100.0), quiet(g0=100.0, g1=100.0)
    assert remedies(state, all_of_them, rules, 699.0) == {}
    assert remedies(state, all_of_them, rules, 700.0) == {1: Remedy.SHRINK}
    assert remedies(state, all_of_them, rules, 1300.0) == {1: Remedy.SUSPEND}
    assert remedies(state, half, rules, 9999.0) == {1: Remedy.SHRINK}, "only part of it idles: it is not suspended"
    assert remedies(state, all_of_them, IdleRules(), 9999.0) == {}, "by default people are warned, and that is all"


def test_a_job_that_would_lose_its_work_is_left_alone() -> None:
    rules = IdleRules(shrink_after_s=600.0, suspend_after_s=1200.0)
    assert remedies(running(0, 1, uses_library=False), quiet(g0=0.0, g1=0.0), rules, 9999.0) == {}


def test_it_keeps_a_size_that_it_allows() -> None:
    record = running(0, 1, 2, 3, gpus=GpuRequest(min=2, max=4, allowed=(2, 4))).jobs[1]
    assert [smaller(record, Idle(job=1, gpus=n, held=4, since_s=0.0)) for n in (4, 2, 1)] == [2, 2, 4]
    fixed = running(0, 1, gpus=GpuRequest(min=2, max=2))
    assert remedies(fixed, quiet(g0=0.0), IdleRules(shrink_after_s=600.0), 9999.0) == {}, "it has no smaller size"
