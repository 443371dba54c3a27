"""Faithful: on the public workloads, under the published rules, what was published comes out again."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.core.snapshot import Options
from swell.sim.simulate import Case, Outcome, simulate

TIRESIAS = {1: 2474, 2: 5145, 3: 3876, 4: 3280}
"""Published mean completion times in seconds: two queues, 16 GPU-hours, no promotion, fixed batch sizes."""
OPTIMUS = {1: 4087, 2: 6914, 3: 3944, 4: 5968}
"""The same, told the true speeds."""
TWO_QUEUES = {"thresholds_gpu_s": "57600", "knob": 1e9, "by_submission": True}
AS_PUBLISHED = Options(starvation_s=1e12, max_moves=0)
"""Published runs let jobs starve and never move one that keeps its size."""


def pollux(data: Path, number: int, policy: str, **changes: object) -> Outcome:
    case = Case(
        workload=data / "pollux" / "workloads" / f"workload-{number}.csv",
        profiles=data / "pollux" / "profiles",
        cluster="16x4",
        policy=policy,
        **changes,  # type: ignore[arg-type]
    )
    return simulate(case)


@pytest.mark.parametrize("number", TIRESIAS)
def test_tiresias_lands_within_5_percent_of_what_was_published(data: Path, number: int) -> None:
    outcome = pollux(data, number, "tiresias", policy_options=TWO_QUEUES, options=AS_PUBLISHED)
    assert outcome.summary["mean_jct_s"] == pytest.approx(TIRESIAS[number], rel=0.05)
    assert outcome.summary["jobs"] == 160


@pytest.mark.parametrize("number", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 4))])
def test_optimus_told_the_truth_lands_within_10_percent(data: Path, number: int) -> None:
    outcome = pollux(data, number, "optimus", clairvoyant=True, options=AS_PUBLISHED)
    assert outcome.summary["mean_jct_s"] == pytest.approx(OPTIMUS[number], rel=0.10)


@pytest.mark.parametrize("adaptive", [False, True])
def test_knowing_the_truth_is_no_worse_than_learning_it(data: Path, adaptive: bool) -> None:
    told = pollux(data, 1, "elastic-fifo", clairvoyant=True, adaptive=adaptive)
    learning = pollux(data, 1, "elastic-fifo", adaptive=adaptive)
    assert float(str(told.summary["mean_jct_s"])) < 1.1 * float(str(learning.summary["mean_jct_s"]))
