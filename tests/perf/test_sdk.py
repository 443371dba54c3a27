"""What the in-job library costs a training, with a daemon that is well, stopped, hung or slow."""

from __future__ import annotations

import json
import time
import timeit
from pathlib import Path
from statistics import median

import pytest

from integration.sdk.test_unreachable import DAEMONS, all_kinds
from swell.sdk.session import Training
from swell.sdk.settings import Settings
from swell.sdk.steps import StepTraining

pytestmark = pytest.mark.perf
LIMITS = json.loads((Path(__file__).parent / "thresholds.json").read_text())["sdk"]


def test_measure() -> None:
    run = Training(settings=Settings())
    run.start_epoch()
    cost_us = min(timeit.repeat(run.measure, number=50_000, repeat=7)) / 50_000 * 1e6
    ask_us = min(timeit.repeat(run.should_stop, number=50_000, repeat=7)) / 50_000 * 1e6
    print(f"measure {cost_us:.2f} µs, should_stop {ask_us:.2f} µs")
    assert cost_us <= LIMITS["measure_us"]["at_most"]


def test_a_step_of_a_training_by_steps(tmp_path: Path) -> None:
    """CPU time of `for step in run.loop()` with `checkpoint_due()`."""
    steps = 100_000

    def trained() -> float:
        run = StepTraining(total=steps + 1, checkpoint_dir=tmp_path, settings=Settings())
        began_s = time.process_time()
        for step in run.loop():
            if run.checkpoint_due() or step == steps:
                break
        return time.process_time() - began_s

    cost_us = min(trained() for _ in range(7)) / steps * 1e6
    print(f"loop and checkpoint_due {cost_us:.2f} µs per step")
    assert cost_us <= LIMITS["step_us"]["at_most"]


def test_a_daemon_that_does_not_answer_costs_at_most_one_per_cent(tmp_path: Path) -> None:
    """40 s of training that mostly waits, as for a GPU; all kinds side by side, three rounds, their median."""
    rounds = [all_kinds(tmp_path / str(index), epochs=400) for index in range(3)]
    for kind in DAEMONS:
        ratio = median(found[kind][1] / found["none"][1] for found in rounds)
        whole = median(found[kind][2] / found["none"][2] for found in rounds)
        print(f"{kind}: training {ratio:.4f}, process {whole:.4f}")
        assert kind == "well" or ratio <= LIMITS["unreachable_ratio"]["at_most"]
