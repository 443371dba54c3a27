"""Max-min over GPU types: targets computed by hand, and rounds that reach them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from unit.policy.views import NOW_S, bare, counts, linear, snapshot, view

pytest.importorskip("highspy")


def wants(memory: Mapping[str, object], job: int) -> dict[str, float]:
    jobs = memory["jobs"]
    assert isinstance(jobs, Mapping)
    return {key.removeprefix("want:"): part for key, part in jobs[str(job)].items() if key.startswith("want:")}


def test_jobs_of_one_kind_share_the_time_equally() -> None:
    jobs = [view(i, 4, 4, req=4) for i in (1, 2, 3)]
    decision = bare("max-min", snapshot(jobs, 8))
    assert counts(decision, jobs) == [4, 4, 0]
    for job in jobs:
        assert wants(decision.memory, job.id)["gpu"] == pytest.approx(2 / 3)


def test_thousands_of_jobs_share_the_time_equally_too() -> None:
    jobs = [view(i, 1, 1) for i in range(1, 2402)]
    memory = bare("max-min", snapshot(jobs, 1200)).memory
    for job in jobs:
        assert wants(memory, job.id)["gpu"] == pytest.approx(1200 / 2401, rel=1e-4)


def test_the_one_that_gains_from_the_fast_type_gets_more_of_it() -> None:
    # Normalised speeds: job 1 has 1.6 on a100 and 0.4 on t4, job 2 has 1 on both. With x the part of job 1 on a100:
    # 0.4 + 1.2x for job 1 and 1 for job 2 whatever it gets, so the smaller one is greatest at x ≥ 0.5; the sum wants 1.
    fast = tuple(4.0 * k for k in range(5))
    jobs = [
        view(1, 4, 4, curves={"a100": fast, "t4": linear(4)}, types=("a100", "t4")),
        view(2, 4, 4, curve=linear(4), types=("a100", "t4")),
    ]
    decision = bare("max-min", snapshot(jobs, {"a100": 4, "t4": 4}))
    assert wants(decision.memory, 1) == pytest.approx({"a100": 1.0, "t4": 0.0}, abs=1e-6)
    assert [decision.grants[i].gpu_type for i in (1, 2)] == ["a100", "t4"]


def test_rounds_give_each_job_its_part_of_the_time() -> None:
    memory: Mapping[str, object] = {}
    held: dict[int, int] = {}
    had = {1: 0, 2: 0, 3: 0}
    for turn in range(60):
        jobs = [view(i, 4, 4, req=4, held=held.get(i, 0), at=NOW_S - 1) for i in (1, 2, 3)]
        taken = replace(snapshot(jobs, 8), now_s=NOW_S + 60.0 * turn)
        decision = bare("max-min", taken, memory)
        memory = decision.memory
        held = {job: given.n for job, given in decision.grants.items()}
        for job in held:
            had[job] += 1
    assert all(36 <= turns <= 44 for turns in had.values())


def test_weight_buys_more_of_the_time() -> None:
    jobs = [view(1, 4, 4, req=4, weight=2.0), view(2, 4, 4, req=4)]
    memory = bare("max-min", snapshot(jobs, 4)).memory
    assert wants(memory, 1)["gpu"] == pytest.approx(2 / 3)
    assert wants(memory, 2)["gpu"] == pytest.approx(1 / 3)


def test_what_can_never_fit_is_passed_over_with_a_reason() -> None:
    jobs = [view(1, 64, 64, req=64), view(2, 1, 1)]
    decision = bare("max-min", snapshot(jobs, 8))
    assert counts(decision, jobs) == [0, 1]
    assert decision.why()[1][0].detail["needs"] == 64
