"""Faithful: on the public workloads, under the published rules, what was published comes out again."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.sim.case import Case, Outcome, simulate

TIRESIAS = {1: 2474, 2: 5145, 3: 3876, 4: 3280}
"""Published mean completion times in seconds: two queues, 16 GPU-hours, no promotion, fixed batch sizes."""
AS_PUBLISHED = {"thresholds_gpu_s": "57600", "knob": 1e9}


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
def test_tiresias_lands_where_it_was_published(data: Path, number: int) -> None:
    outcome = pollux(data, number, "tiresias", policy_options=AS_PUBLISHED)
    assert outcome.summary["mean_jct_s"] == pytest.approx(TIRESIAS[number], rel=0.07)
    assert outcome.summary["jobs"] == 160


@pytest.mark.parametrize("adaptive", [False, True])
def test_knowing_the_truth_is_no_worse_than_learning_it(data: Path, adaptive: bool) -> None:
    told = pollux(data, 1, "elastic-fifo", clairvoyant=True, adaptive=adaptive)
    learning = pollux(data, 1, "elastic-fifo", adaptive=adaptive)
    assert told.summary["mean_jct_s"] < 1.1 * float(str(learning.summary["mean_jct_s"]))
