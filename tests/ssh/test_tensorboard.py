"""`swell tensorboard` of a job on a machine over SSH: what it writes is brought here as it grows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from harness import ROOT, Daemon, eventually
from ssh.fleet import add, until
from ssh.machines import Machine
from ssh.shell import Shell

STAND_IN = """#!/bin/sh
echo "$2" > {told}
trap 'exit 0' TERM
while :; do sleep 0.1; done
"""
EVENTS = "logs/events.out.tfevents.1.host"
WRITES = f"mkdir logs; echo one > {EVENTS}; echo no > logs/model.pt; until [ -e ~/more ]; do sleep 0.1; done; "
WRITES += f"echo two >> {EVENTS}; sleep 1000"


def test_what_a_job_writes_there_is_shown_here_as_it_grows(
    new_machine: Callable[..., Machine], served: Daemon, sh: Shell, tmp_path: Path
) -> None:
    machine = new_machine("gpu1", gpus=1)
    add(sh, machine)
    told, stand_in = tmp_path / "told", tmp_path / "bin" / "tensorboard"
    stand_in.parent.mkdir()
    stand_in.write_text(STAND_IN.format(told=told))
    stand_in.chmod(0o755)
    (job,) = served.submit(command=WRITES, gpus=1, name="train", grace=1)
    until(served, job, "running")

    def listed() -> bool:
        return EVENTS in [file["path"] for file in served.get(f"/v1/jobs/{job}/tree")["files"]]

    eventually(listed, 30.0, what="it has written", every_s=0.2)
    env = {**os.environ, "PATH": f"{stand_in.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    words = ["tensorboard", str(job), "--logdir", "logs", "--linger", "1s", "--home", str(served.home)]
    board = subprocess.Popen([sys.executable, "-m", "swell", *words], env=env)
    eventually(lambda: told.exists() and told.read_text(), 30.0, what="TensorBoard is started")
    here = Path(told.read_text().strip().removeprefix(f"train-{job}:"))
    events = here / Path(EVENTS).name
    assert (events.read_text(), [path.name for path in here.iterdir()]) == ("one\n", [events.name])
    (machine.home() / "more").touch()
    eventually(lambda: events.read_text() == "one\ntwo\n", 30.0, what="what it writes next is here too")
    sh("cancel", job, "--now")
    assert board.wait(60.0) == 0
    assert not here.exists()
