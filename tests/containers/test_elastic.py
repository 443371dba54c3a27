"""Training in a container: preempted, resized and resumed like any other, its losses those of an undisturbed one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from containers.images import podman, python
from containers.jobs import ended, log_of, serving
from harness import ROOT, Daemon, eventually

pytestmark = pytest.mark.containers
EPOCHS = 16
WORDS = ["-m", "swell.demo.trainer", "--width", "16", "--seed", "5", "--epochs", str(EPOCHS), "--slot-seconds"]
SOURCE = {"PYTHONPATH": "/swell-src", "OPENBLAS_NUM_THREADS": "1"}


def losses_in(text: str) -> dict[int, str]:
    return {int(epoch): loss for epoch, loss in re.findall(r"^epoch (\d+) loss (\S+) on", text, re.MULTILINE)}


def undisturbed() -> dict[int, str]:
    """The same training in the same image, by podman alone."""
    options = ["--runtime=runc", "--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096", "--network=none", "--rm"]
    env = [f"--env={name}={value}" for name, value in SOURCE.items()]
    done = podman("run", *options, *env, f"--volume={ROOT / 'src'}:/swell-src:ro", python(), "python", *WORDS, "0")
    assert done.returncode == 0, done.stderr
    return losses_in(done.stdout)


def done(served: Daemon, job: int) -> int:
    return int(served.get(f"/v1/jobs/{job}")["progress"]["epochs_done"])


def held(served: Daemon, job: int) -> int:
    told = served.get(f"/v1/jobs/{job}")
    return int(told["gpus"]["held"]) if told["state"] == "running" else 0


def test_numpy_training_in_an_image_goes_1_2_1_and_its_losses_go_on(tmp_path: Path) -> None:
    wanted = undisturbed()
    assert sorted(wanted) == list(range(EPOCHS))
    plain = {"image": python(), "env": SOURCE, "mounts": [f"{ROOT / 'src'}:/swell-src:ro"], "cpus": 0}
    with serving(tmp_path / "home", str(ROOT / "src"), gpus=2, policy="elastic-fifo") as served:
        blocker = {"command": ["python", "-c", "import time; time.sleep(1000)"], **plain, "gpus": 1, "grace": 1}
        (first,) = served.submit(name="first", **blocker)
        (job,) = served.submit(
            name="elastic",
            command=["python", *WORDS, "2"],
            **plain,
            gpus={"min": 1, "max": 2},
            launcher="per-node",
            epochs=EPOCHS,
            uses_library=True,
        )
        eventually(lambda: held(served, job) == 1, 60.0, what="it begins with 1")
        eventually(lambda: done(served, job) >= 1, 60.0)
        served.post(f"/v1/jobs/{job}/pause")
        served.post(f"/v1/jobs/{first}/cancel")
        eventually(lambda: served.get(f"/v1/jobs/{job}")["state"] == "queued", 60.0, what="it leaves at an epoch's end")
        served.post(f"/v1/jobs/{job}/resume")
        eventually(lambda: held(served, job) == 2, 90.0, what="it grows to 2")
        before = done(served, job)
        eventually(lambda: done(served, job) >= before + 2, 60.0)
        (second,) = served.submit(name="second", priority="urgent", **blocker)
        eventually(lambda: held(served, job) == 1, 90.0, what="it shrinks to 1")
        served.post(f"/v1/jobs/{second}/cancel")
        assert ended(served, job, 180.0)["state"] == "completed"
        attempts = served.get(f"/v1/jobs/{job}")["attempts"]
        logs = "".join(log_of(served.home, job, attempt) for attempt in range(1, attempts + 1))
        assert losses_in(logs) == wanted
        sizes = re.findall(r"on (\d) slots", logs)
        assert [size for size, before in zip(sizes, ["", *sizes], strict=False) if size != before][:3] == [
            "1",
            "2",
            "1",
        ]
