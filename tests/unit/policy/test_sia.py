"""Sia: the integer program against brute force, the factors of the paper, and the time cap."""

from __future__ import annotations

import itertools
import random
import sys

import pytest

from swell.core.errors import SwellError
from swell.core.snapshot import JobView, Options, Snapshot
from swell.policy import sia
from swell.policy.registry import policy_named
from swell.policy.sia import _choices, _history, _restart_factor
from unit.policy.views import NOW_S, bare, counts, linear, power, snapshot, view

pytest.importorskip("highspy")
FREE = Options(policy={"growth": 1000.0})


def best_total(jobs: list[JobView], taken: Snapshot) -> float:
    """Every combination of choices."""
    choices = _choices(jobs, {job.id: _history(job, {}) for job in jobs}, taken)
    per_job = [[None, *(c for c in choices if c.job == index)] for index in range(len(jobs))]
    best = 0.0
    for combination in itertools.product(*per_job):
        left = dict(taken.capacity.gpu_milli)
        for choice in combination:
            if choice is not None:
                left[choice.grant.gpu_type] -= choice.milli
        if min(left.values()) >= 0:
            best = max(best, sum(choice.value for choice in combination if choice is not None))
    return best


def total_of(jobs: list[JobView], taken: Snapshot) -> float:
    news = {job.id: _history(job, {}) for job in jobs}
    grants = bare("sia", taken).grants
    return sum(c.value for c in _choices(jobs, news, taken) if grants.get(jobs[c.job].id) == c.grant)


def two_types(rng: random.Random, count: int, most: int) -> list[JobView]:
    """Every other one runs, so that it may grow."""
    return [
        view(
            i,
            1,
            most,
            curves={"a": power(most, rng.uniform(0.3, 1)), "b": tuple(2 * y for y in power(most, rng.uniform(0.3, 1)))},
            types=("a", "b"),
            held=i % 2,
        )
        for i in range(1, count + 1)
    ]


def test_the_answer_is_the_best_of_all_combinations() -> None:
    rng = random.Random(5)
    for _ in range(25):
        jobs = two_types(rng, 4, 4)
        taken = snapshot(jobs, {"a": rng.randrange(1, 8), "b": rng.randrange(1, 8)}, FREE)
        assert total_of(jobs, taken) == pytest.approx(best_total(jobs, taken), rel=2e-4)


def test_with_many_choices_no_more_is_lost_than_one_job_a_type(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(6)
    for _ in range(10):
        jobs = two_types(rng, 40, 8)
        taken = snapshot(jobs, {"a": rng.randrange(10, 60), "b": rng.randrange(10, 60)}, FREE)
        best = total_of(jobs, taken)
        monkeypatch.setattr(sia, "_MANY", 0)
        assert best - 2 * 1.1 <= total_of(jobs, taken) <= best * (1 + 2e-4)
        monkeypatch.undo()


def test_hundreds_of_jobs_are_shared_out_better_than_by_the_greedy() -> None:
    jobs = two_types(random.Random(7), 800, 8)
    taken = snapshot(jobs, {"a": 900, "b": 500}, FREE)
    choices = _choices(jobs, {job.id: _history(job, {}) for job in jobs}, taken)
    assert len(choices) > sia._MANY
    greedy = sum(c.value for c, x in zip(choices, sia._greedy(choices, taken), strict=True) if x)
    assert total_of(jobs, taken) > greedy * 1.02


def test_each_job_goes_to_the_type_where_it_gains_most() -> None:
    fast, same = tuple(4.0 * k for k in range(5)), tuple(1.2 * k for k in range(5))
    jobs = [
        view(1, 4, 4, curves={"a100": fast, "t4": linear(4)}, types=("a100", "t4")),
        view(2, 4, 4, curves={"a100": same, "t4": linear(4)}, types=("a100", "t4")),
    ]
    grants = bare("sia", snapshot(jobs, {"a100": 4, "t4": 4})).grants
    assert [grants[1].gpu_type, grants[2].gpu_type] == ["a100", "t4"]


def test_a_job_starts_small_and_at_most_doubles() -> None:
    waiting, running = view(1, 1, 8), view(1, 1, 8, held=2)
    assert counts(bare("sia", snapshot([waiting], 8)), [waiting]) == [1]
    assert counts(bare("sia", snapshot([running], 8)), [running]) == [4]


def test_a_young_job_that_restarted_often_is_left_alone() -> None:
    old = view(1, 1, 8, at=NOW_S - 36_000)
    young = view(1, 1, 8, at=NOW_S - 100)
    assert _restart_factor(old, 1, NOW_S) > 0.99
    assert _restart_factor(young, 3, NOW_S) < 0.1
    held = view(1, 1, 8, held=4, at=NOW_S - 60, curve=power(8, 0.3))
    decision = bare("sia", snapshot([held], 8), {"jobs": {"1": {"restarts": 2.0, "most": 4.0, "changed_s": NOW_S}}})
    assert counts(decision, [held]) == [4]


def test_restarts_are_counted_from_what_changed() -> None:
    job = view(1, 1, 8, held=2)
    memory = bare("sia", snapshot([job], 8)).memory
    again = bare("sia", snapshot([job], 8), memory).memory
    assert again["jobs"] == memory["jobs"] == {"1": {"restarts": 1.0, "most": 2.0, "changed_s": NOW_S - 500}}


def test_without_time_there_still_is_an_answer() -> None:
    jobs = [view(i, 1, 8, rem=100 * i) for i in range(1, 200)]
    taken = snapshot(jobs, 64, Options(policy={"time_limit_s": 0.01, "growth": 8.0}))
    assert sum(counts(bare("sia", taken), jobs)) > 0


@pytest.mark.parametrize("name", ["sia", "max-min"])
def test_without_the_solver_people_are_told_how_to_get_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(SwellError, match=r"pip install 'swell\[solvers\]'"):
        policy_named(name)


def test_a_job_that_waits_is_shown_what_the_others_leave() -> None:
    jobs = [view(i, 3, 3, curves={"gpu": linear(3)}) for i in (1, 2)]
    decision = bare("sia", snapshot(jobs, gpus=4))
    (waiting,) = (job.id for job in jobs if job.id not in decision.grants)
    (reason,) = decision.reasons[waiting]
    assert reason.detail == {"needs": 3, "free": 1}
