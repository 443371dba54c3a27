"""PyTorch DDP under the real daemon: shrunk and preempted by other jobs, grown again; the same weights, and what each
restart cost is known to the next decision."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import ROOT, Daemon, daemon, eventually
from integration.sdk.ddp_reference import EPOCH, PRINTED, SCRIPT, Reference

PYTHON = Path(os.environ.get("SWELL_TORCH_PYTHON") or ROOT / ".venv-torch" / "bin" / "python")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not PYTHON.exists(), reason="no PyTorch here: `make test-torch` makes .venv-torch"),
]
EPOCHS = 100


def record(served: Daemon, job: int) -> Any:
    return served.get(f"/v1/jobs/{job}")


def epochs(served: Daemon, job: int) -> list[tuple[int, float, int]]:
    """(number, loss, workers) of each that rank 0 has printed."""
    paths = sorted((served.home / "runs").glob(f"{job}.*/0/log"), key=lambda path: int(path.parts[-3].split(".")[1]))
    found = [line for path in paths for line in EPOCH.findall(path.read_text())]
    return [(int(epoch), float(loss), int(workers)) for epoch, loss, workers in found]


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


def test_other_jobs_resize_and_preempt_it(tmp_path: Path, undisturbed_ddp: Callable[[int], Reference]) -> None:
    ours = tmp_path / "ours.pt"
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
            eventually(lambda: epochs(served, job)[-1][2] == 1, 90, what="an epoch on the one GPU that is left")
        with rival(served, tmp_path / "leave-2", gpus=3, priority="urgent"):
            pass
        wait_for_epochs(served, job)
        eventually(lambda: record(served, job)["state"] == "completed", 180, what="the training ends")
        found, seen = record(served, job), epochs(served, job)
    cost_s = found["restart_cost_s"]
    print(f"resizes {found['resizes']}, preemptions {found['preemptions']}, a restart costs {cost_s:.1f} s")
    assert [epoch for epoch, _, _ in seen] == list(range(EPOCHS)), "no epoch lost, none repeated"
    assert len({workers for _, _, workers in seen}) >= 2
    assert found["attempts"] >= 3
    assert found["failures"] == 0
    assert cost_s > 0.5
    reference = undisturbed_ddp(EPOCHS)
    assert [loss for _, loss, _ in seen] == pytest.approx(reference.losses, abs=PRINTED)
    difference = reference.difference(ours)
    print(f"largest difference of a weight: {difference:.1e}")
    assert difference <= 1e-6
