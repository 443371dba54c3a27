"""`swell tensorboard`: started on what jobs write, stopped by itself; a stand-in on the PATH records how."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from harness import ROOT, daemon, eventually

STAND_IN = """#!/bin/sh
echo "$@" > {told}
trap 'echo stopped >> {told}; exit 0' TERM
while :; do sleep 0.1; done
"""


def words(served_home: Path, *rest: str) -> list[str]:
    return [sys.executable, "-m", "swell", "tensorboard", *rest, "--home", str(served_home)]


def test_it_shows_the_files_of_jobs_and_ends_after_they_have(tmp_path: Path) -> None:
    told, stand_in = tmp_path / "told", tmp_path / "bin" / "tensorboard"
    stand_in.parent.mkdir()
    stand_in.write_text(STAND_IN.format(told=told))
    stand_in.chmod(0o755)
    env = {**os.environ, "PATH": f"{stand_in.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    with daemon(tmp_path / "home", gpus=2) as served:
        (job,) = served.submit(command="mkdir -p logs; sleep 1000", gpus=0, name="train", grace=1)
        eventually(lambda: served.get(f"/v1/jobs/{job}")["state"] == "running", 30.0)
        board = subprocess.Popen(words(served.home, str(job), "--linger", "1s", "--port", "6123"), env=env)
        eventually(lambda: told.exists() and told.read_text(), 30.0, what="it is started")
        directory = served.home / "work" / str(job)
        assert told.read_text() == f"--logdir_spec train-{job}:{directory} --host 127.0.0.1 --port 6123\n"
        served.post(f"/v1/jobs/{job}/cancel")
        assert board.wait(30.0) == 0
        assert told.read_text().endswith("stopped\n")


def test_without_tensorboard_it_says_what_to_install(tmp_path: Path) -> None:
    env = {"PATH": "/nowhere", "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path)}
    done = subprocess.run(words(tmp_path, "1"), env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install tensorboard" in done.stderr
