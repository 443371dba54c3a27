"""Teams with a budget of GPU hours: what every policy leaves them when it is used up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from swell.core.budgets import month_start_s, next_month_s
from swell.core.decision import ReasonCode
from swell.core.snapshot import JobView, Options, Snapshot
from swell.plan.explain import sentence
from swell.policy.registry import POLICIES
from unit.policy.views import NOW_S, counts, decide, snapshot, view

HOUR_S = 3600.0
OPTIONS = Options(budgets={"a": 10.0})


def with_used(jobs: Sequence[JobView], used_s: Mapping[str, float], gpus: int = 8) -> Snapshot:
    return replace(snapshot(jobs, gpus, OPTIONS), month_gpu_s=used_s)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_team_that_has_used_its_hours_gets_nothing_and_the_reason_says_until_when(policy: str) -> None:
    jobs = [view(1, 2, 2, team="a"), view(2, 2, 2, held=2, team="a"), view(3, 2, 2, team="b")]
    decision = decide(policy, with_used(jobs, {"a": 10 * HOUR_S}))
    assert counts(decision, jobs) == [0, 0, 2]
    why = decision.why()[1][0]
    assert why.code is ReasonCode.BUDGET
    assert why.detail == {"team": "a", "used": 10.0, "budget": 10.0, "until_s": next_month_s(NOW_S)}
    assert decision.wake_s == next_month_s(NOW_S)
    assert "team a has used 10.0 of its 10.0 GPU hours of this month" in sentence(why)


@pytest.mark.parametrize("policy", POLICIES)
def test_hours_that_are_left_may_be_used(policy: str) -> None:
    jobs = [view(1, 2, 2, team="a"), view(2, 2, 2, team="b")]
    assert counts(decide(policy, with_used(jobs, {"a": 10 * HOUR_S - 1})), jobs) == [2, 2]


def test_never_stops_a_run_that_cannot_resume_nor_a_job_without_gpus() -> None:
    jobs = [view(1, 2, 2, held=2, pinned=True, team="a"), view(2, milli=0, types=(), team="a")]
    assert counts(decide("swell", with_used(jobs, {"a": 11 * HOUR_S})), jobs) == [2, 1]


def test_it_is_decided_again_when_the_hours_will_be_used_up() -> None:
    jobs = [view(1, 2, 2, held=2, team="a")]
    assert decide("swell", with_used(jobs, {"a": 8 * HOUR_S})).wake_s == NOW_S + HOUR_S


def test_months_without_hours_never_count_as_starving() -> None:
    """Job 2 waits since long before this month, job 1 is shorter and goes first."""
    jobs = [view(1, 8, 8, rem=10.0, team="b"), view(2, 8, 8, rem=1e5, team="a", waiting=NOW_S)]
    now_s = month_start_s(NOW_S) + 60.0
    assert counts(decide("swell", replace(with_used(jobs, {}), now_s=now_s)), jobs) == [8, 0]
