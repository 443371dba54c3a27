"""A training ends while no daemon listens: its epochs count all the same, and the code after them runs once.

The truth is the training's own: a file made with O_EXCL for each epoch, a line for each time its tail begins and ends.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from harness import ROOT, Daemon, end_runs, eventually

EPOCHS = 3
TRAINING = """
import os, sys, time, swell
truth = sys.argv[1]
def note(text):
    with open(truth + "/tail", "a") as out:
        out.write(text + chr(10))
with swell.training(epochs=3) as run:
    run.load()
    for epoch in run.epochs():
        if epoch == 1:
            while not os.path.exists(truth + "/go"):
                time.sleep(0.02)
        os.close(os.open(f"{truth}/epoch-{epoch}", os.O_CREAT | os.O_EXCL))
        run.save(epoch)
note("begins")
while not os.path.exists(truth + "/end"):
    time.sleep(0.02)
note("ends")
"""


@pytest.mark.parametrize(("how", "heard"), [("pause", True), ("pause", False), ("preempt", False)])
def test_a_training_that_ended_while_the_daemon_was_down_is_not_stopped_in_its_tail(
    tmp_path: Path, how: str, heard: bool
) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    served = Daemon(tmp_path / "home", gpus=1)
    try:
        served.start()
        job = submit(served, tmp_path)
        if heard:
            eventually(lambda: progress(served, job)["epochs_done"] == 1, 20, what="the first epoch is reported")
        else:
            eventually((tmp_path / "home/runs/1.1/0/claim").exists, 20, what="a claim")
        served.kill()
        (tmp_path / "go").touch()
        eventually((tmp_path / "tail").exists, 20, what="the tail begins")
        served.start()
        stop(served, job, how)
        eventually(lambda: progress(served, job)["epochs_done"] == EPOCHS, 10, what="what it did is known")
        time.sleep(7.0 if heard else 1.0)  # until well after SIGTERM would have come, and SIGKILL 0.2 s later
        (tmp_path / "end").touch()
        eventually(lambda: served.get(f"/v1/jobs/{job}")["state"] == "completed", 20, what="its end")
        assert (tmp_path / "tail").read_text().split() == ["begins", "ends"]
        assert progress(served, job)["epochs_done"] == EPOCHS
    finally:
        if served.process is not None and served.process.poll() is None:
            served.kill()
        end_runs(served.home)


def submit(served: Daemon, truth: Path) -> int:
    command = [sys.executable, str(truth / "train.py"), str(truth)]
    env = {"PYTHONPATH": str(ROOT / "src")}
    return served.submit(name="t", command=command, gpus=1, env=env, uses_library=True, grace=0.2)[0]


def progress(served: Daemon, job: int) -> dict[str, int]:
    found: dict[str, int] = served.get(f"/v1/jobs/{job}")["progress"]
    return found


def stop(served: Daemon, job: int, how: str) -> None:
    if how == "pause":
        served.post(f"/v1/jobs/{job}/pause")
    else:
        served.submit(name="urgent", command=["true"], gpus=1, priority=50)
    eventually(lambda: served.get(f"/v1/jobs/{job}")["state"] == "stopping", 20, what="it is asked to stop")


def test_epochs_that_were_done_without_a_daemon_are_shown_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    served = Daemon(tmp_path / "home", gpus=1)
    try:
        served.start()
        job = submit(served, tmp_path)
        eventually((tmp_path / "home/runs/1.1/0/claim").exists, 20, what="a claim")
        served.kill()
        for name in ("go", "end"):
            (tmp_path / name).touch()
        eventually((tmp_path / "home/runs/1.1/0/swept").exists, 20, what="its end")
        served.start()
        eventually(lambda: served.get(f"/v1/jobs/{job}")["state"] == "completed", 20, what="its end is known")
        shown = progress(served, job)
        assert (shown["epochs_done"], shown["epochs_total"], shown["fraction"]) == (EPOCHS, EPOCHS, 1.0)
    finally:
        if served.process is not None and served.process.poll() is None:
            served.kill()
        end_runs(served.home)
