"""The library and the launchers under the real daemon: resized by its policy, made to stop when they will not."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from harness import Daemon, daemon, eventually, marked_processes
from integration.sdk.test_numpy_resized import EPOCH, SCRIPT, uninterrupted
from swell.sdk import ship

STUBBORN = """
import pathlib, signal, subprocess, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
kept = pathlib.Path(sys.argv[1])
kept.mkdir(exist_ok=True)
done = int((kept / "epoch").read_text()) if (kept / "epoch").exists() else 0
print("starts at", done, flush=True)
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
for epoch in range(done, int(sys.argv[2])):
    time.sleep(0.1)
    (kept / ".epoch").write_text(str(epoch + 1))
    (kept / ".epoch").rename(kept / "epoch")
print("ends", flush=True)
"""


def log_of(served: Daemon, job: int) -> str:
    """What rank 0 printed, over all attempts."""
    paths = sorted((served.home / "runs").glob(f"{job}.*/0/log"), key=lambda path: int(path.parts[-3].split(".")[1]))
    return "".join(path.read_text() for path in paths)


def state(served: Daemon, job: int) -> Any:
    return served.get(f"/v1/jobs/{job}")


def test_jobs_that_come_and_go_resize_a_training_and_change_nothing_in_it(tmp_path: Path) -> None:
    sdk = ship.ship(tmp_path / "sdk")
    options = {
        "launcher": "per-gpu",
        "workdir": str(SCRIPT.parent),
        "uses_library": True,
        "env": {"PATH": os.environ["PATH"]},
    }
    with daemon(tmp_path / "home", gpus=3, args=("--policy", "elastic-fifo")) as served:
        command = [sys.executable, "train.py", "--steps", "4", "--work-s", "0.05"]
        (long,) = served.submit(name="long", command=command, gpus="1-3", epochs=60, **options)
        eventually(lambda: "epoch 2 " in log_of(served, long), 60, what="some epochs")
        (short,) = served.submit(name="short", command=command, gpus="2-3", epochs=12, **options)
        eventually(lambda: state(served, short)["state"] == "completed", 90, what="the short one ends")
        eventually(lambda: state(served, long)["state"] == "completed", 120, what="the long one ends")
        record = state(served, long)
        lines = EPOCH.findall(log_of(served, long))
    assert [int(epoch) for epoch, _, _ in lines] == list(range(60)), "no epoch lost, none repeated"
    assert {int(epoch): loss for epoch, loss, _ in lines} == uninterrupted(sdk, 60, 4)
    assert len({workers for _, _, workers in lines}) >= 2, "it was resized"
    assert record["resizes"] + record["preemptions"] >= 1
    assert record["failures"] == 0
    assert record["restart_cost_s"] > 0, "what a restart costs was measured, and is known to the next decision"


def test_a_script_that_ignores_everything_is_stopped_and_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "stubborn.py").write_text(STUBBORN)
    kept = tmp_path / "kept"
    with daemon(tmp_path / "home", gpus=1) as served:
        (job,) = served.submit(
            name="stubborn",
            command=[sys.executable, "stubborn.py", str(kept), "90"],
            gpus=1,
            workdir=str(tmp_path / "work"),
            checkpoint_dir=str(kept),
            grace=0.5,
        )
        eventually(lambda: (kept / "epoch").exists(), 30, what="its first checkpoint")
        served.post(f"/v1/jobs/{job}/pause")
        eventually(lambda: state(served, job)["state"] == "queued", 30, what="it is stopped")
        assert marked_processes(served.home) == [], "nothing of it is left, not even what left its session"
        served.post(f"/v1/jobs/{job}/resume")
        eventually(lambda: state(served, job)["state"] == "completed", 60, what="it ends")
        log = log_of(served, job)
        record = state(served, job)
    starts = [int(epoch) for epoch in re.findall(r"starts at (\d+)", log)]
    assert starts[0] == 0
    assert starts[1] > 0, "the second attempt went on from the checkpoint"
    assert record["failures"] == 0, "being made to stop is no failure"


EVERY_SECOND = """
import os, pathlib, signal, sys, time
kept = pathlib.Path(sys.argv[1])
kept.mkdir(exist_ok=True)
resumes = (kept / "epoch").exists()
saved = done = int((kept / "epoch").read_text()) if resumes else 0
def leave(*_):
    print(f"told to end: done {done} saved {saved}", flush=True)
    sys.exit(1)
signal.signal(signal.SIGTERM, leave)
while done < 6:
    time.sleep(0.1 if resumes else 7.0)
    done += 1
    print(f"epoch {done}/6", flush=True)
    if done % 2 == 0:
        (kept / "new").write_text(str(done))
        os.replace(kept / "new", kept / "epoch")
        saved = done
"""


def test_a_script_that_saves_every_second_epoch_is_never_stopped_after_another(tmp_path: Path) -> None:
    """A line of the log says that an epoch is over, and nothing of a checkpoint."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text(EVERY_SECOND)
    kept = tmp_path / "kept"
    with daemon(tmp_path / "home", gpus=1) as served:
        command = [sys.executable, "train.py", str(kept)]
        workdir = str(tmp_path / "work")
        (job,) = served.submit(name="every-second", command=command, workdir=workdir, checkpoint_dir=str(kept))
        eventually(lambda: "epoch 3/6" in log_of(served, job), 60, what="an epoch without a checkpoint")
        served.post(f"/v1/jobs/{job}/pause")
        eventually(lambda: state(served, job)["state"] == "queued", 60, what="it is stopped")
        served.post(f"/v1/jobs/{job}/resume")
        eventually(lambda: state(served, job)["state"] == "completed", 60, what="it ends")
        log = log_of(served, job)
    assert "told to end: done 4 saved 4" in log
    assert log.count("epoch 5/6") == 1


def test_a_script_without_the_library_is_followed_in_its_log(tmp_path: Path) -> None:
    example = SCRIPT.parents[1] / "plain-script"
    with daemon(tmp_path / "home", gpus=1) as served:
        (job,) = served.submit(
            name="plain",
            command="./train.sh",
            workdir=str(example),
            gpus=0,
            epochs=5,
            env={"CHECKPOINTS": str(tmp_path / "kept"), "EPOCH_S": "0.8"},
            checkpoint_dir=str(tmp_path / "kept"),
            progress=[r"round (?P<epoch>\d+) of (?P<epochs>\d+) begins", r"error was (?P<error>\S+)"],
        )
        eventually(lambda: 0 < state(served, job)["progress"]["epochs_done"] < 5, 30, what="progress while it runs")
        eventually(lambda: state(served, job)["state"] == "completed", 60, what="it ends")
        record = state(served, job)
    assert record["progress"]["epochs_done"] == 5
    assert record["metrics"] == {"error": 0.4}
