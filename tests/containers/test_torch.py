"""PyTorch DDP in an image: one container per slot. The packages of .venv-torch are mounted read-only."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

import pytest

from containers.images import python
from containers.jobs import ended, log_of, serving
from containers.test_elastic import done, held
from harness import ROOT, eventually

PYTHON = Path(os.environ.get("SWELL_TORCH_PYTHON") or ROOT / ".venv-torch" / "bin" / "python")
PACKAGES = (PYTHON.parent.parent / "lib" / "python3.11" / "site-packages").resolve()
pytestmark = [
    pytest.mark.containers,
    pytest.mark.skipif(
        not (PACKAGES / "torch").exists(), reason="no PyTorch here: `make test-torch` makes .venv-torch"
    ),
]
EPOCHS = 24
EPOCH = re.compile(r"^epoch (\d+) loss (\S+) workers (\d)", re.MULTILINE)


def test_a_pytorch_training_in_an_image_goes_1_2_1_and_its_losses_go_on(tmp_path: Path) -> None:
    code = (ROOT / "examples" / "pytorch-ddp").resolve()
    plain = {"image": python(), "cpus": 0, "gpus": 1}
    with serving(tmp_path / "home", str(PACKAGES), str(code), gpus=2, policy="elastic-fifo") as served:
        blocker = {"command": ["sleep", "1000"], **plain, "grace": 1}
        (first,) = served.submit(name="first", **blocker)
        (job,) = served.submit(
            name="ddp",
            command=["python", "/code/train.py", "--pause-s", "0.06"],
            env={"PYTHONPATH": "/packages", "OMP_NUM_THREADS": "1"},
            mounts=[f"{PACKAGES}:/packages:ro", f"{code}:/code:ro"],
            **{**plain, "gpus": {"min": 1, "max": 2}},
            launcher="per-gpu",
            epochs=EPOCHS,
            uses_library=True,
        )
        eventually(lambda: held(served, job) == 1 and done(served, job) >= 1, 120.0, what="it begins with 1")
        served.post(f"/v1/jobs/{job}/pause")
        served.post(f"/v1/jobs/{first}/cancel")
        eventually(lambda: served.get(f"/v1/jobs/{job}")["state"] == "queued", 60.0, what="it leaves at an epoch's end")
        served.post(f"/v1/jobs/{job}/resume")
        eventually(lambda: held(served, job) == 2, 120.0, what="it grows to 2")
        before = done(served, job)
        eventually(lambda: done(served, job) >= before + 2, 120.0, what="epochs with 2")
        (second,) = served.submit(name="second", priority="urgent", **blocker)
        eventually(lambda: held(served, job) == 1, 120.0, what="it shrinks to 1")
        served.post(f"/v1/jobs/{second}/cancel")
        assert ended(served, job, 240.0)["state"] == "completed"
        attempts = served.get(f"/v1/jobs/{job}")["attempts"]
        logs = "".join(log_of(served.home, job, attempt) for attempt in range(1, attempts + 1))
    seen = EPOCH.findall(logs)
    assert [int(epoch) for epoch, _, _ in seen] == list(range(EPOCHS)), "no epoch lost, none repeated"
    sizes = [size for size, _ in itertools.groupby(size for _, _, size in seen)]
    assert sizes[:3] == ["1", "2", "1"]
    losses = [float(loss) for _, loss, _ in seen]
    print(f"\nworkers {sizes}; losses {losses[0]:.4g} to {losses[-1]:.4g}")
    assert all(later < 1.5 * earlier + 0.05 for earlier, later in itertools.pairwise(losses))
