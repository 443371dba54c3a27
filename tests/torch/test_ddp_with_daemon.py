"""PyTorch DDP under the real daemon: shrunk and preempted by other jobs, grown again; the same weights, and what each
restart cost is known to the next decision."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import ROOT, Daemon, daemon, eventually
from swell.sdk import ship

PYTHON = Path(os.environ.get("SWELL_TORCH_PYTHON") or ROOT / ".venv-torch" / "bin" / "python")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not PYTHON.exists(), reason="no PyTorch here: `make test-torch` makes .venv-torch"),
]
SCRIPT = ROOT / "examples" / "pytorch-ddp" / "train.py"
EPOCH = re.compile(r"epoch (\d+) loss \S+ workers (\d+)")
EPOCHS = 100
COMPARE = """
import sys, torch
a, b = (torch.load(path) for path in sys.argv[1:])
print(max((a[name] - b[name]).abs().max().item() for name in a))
"""


def record(served: Daemon, job: int) -> Any:
    return served.get(f"/v1/jobs/{job}")


def epochs(served: Daemon, job: int) -> list[tuple[int, int]]:
    paths = sorted((served.home / "runs").glob(f"{job}.*/0/log"), key=lambda path: int(path.parts[-3].split(".")[1]))
    return [(int(epoch), int(workers)) for path in paths for epoch, workers in EPOCH.findall(path.read_text())]


def wait_for_epochs(served: Daemon, job: int) -> None:
    before = len(epochs(served, job))
    eventually(lambda: len(epochs(served, job)) > before + 3, 90, what="some epochs")


@contextlib.contextmanager
def rival(served: Daemon, leave: Path, **needs: Any) -> Iterator[None]:
    """Another job that runs until the block ends."""
    wait = f"until test -e {leave}; do sleep 0.1; done"
    (other,) = served.submit(name="other", command=["sh", "-c", wait], **needs)
    eventually(lambda: record(served, other)["state"] == "running", 90, what="the other job runs")
    yield
    leave.touch()
    eventually(lambda: record(served, other)["state"] == "completed", 90, what="the other job ends")


def test_other_jobs_resize_and_preempt_it(tmp_path: Path) -> None:
    ours, reference = tmp_path / "ours.pt", tmp_path / "reference.pt"
    options = {"workdir": str(SCRIPT.parent), "launcher": "per-gpu", "uses_library": True}
    command = [str(PYTHON), "train.py", "--pause-s", "0.02", "--weights", str(ours)]
    (tmp_path / "home").mkdir()
    # Epochs here take a fraction of a second: a run may change again after two.
    (tmp_path / "home" / "config.yaml").write_text("options: {min_run_s: 2.0}\n")
    with daemon(tmp_path / "home", gpus=3, args=("--policy", "elastic-fifo")) as served:
        (job,) = served.submit(name="ddp", command=command, gpus="1-3", epochs=EPOCHS, **options)
        # Each rival stays until its effect has been seen: how fast this machine is decides nothing.
        wait_for_epochs(served, job)
        with rival(served, tmp_path / "leave-1", gpus=2):
            eventually(lambda: epochs(served, job)[-1][1] == 1, 90, what="an epoch on the one GPU that is left")
        with rival(served, tmp_path / "leave-2", gpus=3, priority="urgent"):
            pass
        wait_for_epochs(served, job)
        eventually(lambda: record(served, job)["state"] == "completed", 180, what="the training ends")
        found, seen = record(served, job), epochs(served, job)
    cost_s = found["restart_cost_s"]
    print(f"resizes {found['resizes']}, preemptions {found['preemptions']}, a restart costs {cost_s:.1f} s")
    assert [epoch for epoch, _ in seen] == list(range(EPOCHS)), "no epoch lost, none repeated"
    assert len({workers for _, workers in seen}) >= 2
    assert found["attempts"] >= 3
    assert found["failures"] == 0
    assert cost_s > 0.5
    sdk = ship.ship(tmp_path / "sdk")
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(sdk), "OMP_NUM_THREADS": "1"}
    argv = [str(PYTHON), str(SCRIPT), "--epochs", str(EPOCHS), "--weights", str(reference)]
    subprocess.run(argv, env=env, check=True, capture_output=True)
    compare = [str(PYTHON), "-c", COMPARE, str(ours), str(reference)]
    difference = float(subprocess.run(compare, check=True, capture_output=True, text=True).stdout)
    print(f"largest difference of a weight: {difference:.1e}")
    assert difference <= 1e-6
