"""A real PyTorch DDP training: resized 1→2→3→1 and preempted twice at random, compared with one left in peace."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.sdk.ddp_reference import EPOCH, PRINTED, SCRIPT, Reference
from integration.sdk.fake_daemon import fake_daemon
from integration.sdk.launching import STOPPED, Attempts
from integration.sdk.stable import Stable
from swell.core.job import GpuRequest, JobSpec, Launcher

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("SWELL_TORCH_PYTHON") or str(ROOT / ".venv-torch" / "bin" / "python")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not Path(PYTHON).exists(), reason="no PyTorch here: `make test-torch` makes .venv-torch"),
]
EPOCHS = 40


def spec(weights: Path) -> JobSpec:
    return JobSpec(
        name="ddp",
        command=("python", "train.py", "--weights", str(weights), "--pause-s", "0.01"),
        launcher=Launcher.PER_GPU,
        gpus=GpuRequest(min=1, max=3),
        epochs=EPOCHS,
    )


def test_resized_and_preempted_it_ends_with_the_same_weights(
    tmp_path: Path, stable: Stable, sdk: Path, undisturbed_ddp: Callable[[int], Reference]
) -> None:
    rng = random.Random(5)
    ours = tmp_path / "ours.pt"
    sizes = [1, 2, 3, 1]
    for at in sorted(rng.sample(range(1, len(sizes)), 2), reverse=True):
        sizes.insert(at, sizes[at - 1])  # a preemption: stopped, and started again at the same size
    costs_s = []
    with fake_daemon() as daemon:
        job = Attempts(stable=stable, daemon=daemon, spec=spec(ours), script=SCRIPT, home=tmp_path, sdk=sdk)
        job.start(sizes[0])
        job.wait_until_begun()
        for size in sizes[1:]:
            time.sleep(rng.uniform(0.1, 0.5))
            asked_s = time.monotonic()
            job.ask_to_stop()
            assert set(job.ended()) == {STOPPED}, job.log(0)
            job.start(size)
            job.wait_until_begun()
            costs_s.append(time.monotonic() - asked_s)
        assert set(job.ended(timeout_s=120)) == {0}, job.log(0)
    seen = [match for line in job.lines() if (match := EPOCH.fullmatch(line))]
    assert [int(match[1]) for match in seen] == list(range(EPOCHS)), "no epoch lost, none repeated"
    assert len({match[3] for match in seen}) >= 2, "it ran at several sizes"
    reference = undisturbed_ddp(EPOCHS)
    assert [float(match[2]) for match in seen] == pytest.approx(reference.losses, abs=PRINTED)
    difference = reference.difference(ours)
    print(f"sizes {sizes}, from each command to the next first epoch {[round(cost, 2) for cost in costs_s]} s")
    print(f"largest difference of a weight: {difference:.1e}")
    assert difference <= 1e-6
