"""Adaptive batch size on real DDP: batch and learning rate grow with the noise, goodput is reported."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from integration.sdk.fake_daemon import fake_daemon
from integration.sdk.launching import Attempts
from integration.sdk.stable import Stable
from swell.core.events import Batching
from swell.core.job import GpuRequest, JobSpec, Launcher

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("SWELL_TORCH_PYTHON") or str(ROOT / ".venv-torch" / "bin" / "python")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not Path(PYTHON).exists(), reason="no PyTorch here: `make test-torch` makes .venv-torch"),
]
LINE = re.compile(r"epoch \d+ batch (\d+) rate (\S+) goodput (\d+)")


@pytest.mark.parametrize("workers", [1, 2])
def test_the_batch_follows_the_noise(tmp_path: Path, workers: int, stable: Stable, sdk: Path) -> None:
    script = ROOT / "examples" / "adaptive-batch" / "train.py"
    spec = JobSpec(
        name="adaptive",
        command=("python", "train.py"),
        launcher=Launcher.PER_GPU,
        gpus=GpuRequest(min=1, max=2),
        epochs=6,
        adaptive_batch=True,
    )
    with fake_daemon() as daemon:
        job = Attempts(stable=stable, daemon=daemon, spec=spec, script=script, home=tmp_path, sdk=sdk)
        job.start(workers)
        job.wait_until_begun()
        codes = [stable.wait(pid, 60) for pid in job.pids]
        assert set(codes) == {0}, job.log(0)
        entries = daemon.epochs()
    seen = [(int(batch), float(rate)) for batch, rate, _ in LINE.findall(job.log(0))]
    assert seen[0][0] == 32
    assert seen[-1][0] > 64, "the noise scale grows as the loss falls, and the batch with it"
    linear = 0.01 * seen[-1][0] / 32
    assert 0.01 < seen[-1][1] <= round(linear, 6), "the learning rate too, at most linearly; it is printed rounded"
    assert entries[-1]["goodput"] > 0
    batching = Batching(**entries[-1]["batching"])
    assert (batching.initial, batching.local) == (32, seen[-1][0] // workers)
    assert batching.grad_sqr > 0
    assert batching.grad_var > 0
    assert (batching.sync_s > 0) == (workers > 1), "only several workers wait for each other"
    assert batching.sync_s < entries[-1]["step_s"]
    assert entries[-1]["batch_size"] == seen[-1][0]
