"""`swell backup` while a daemon works, and `swell restore` into another home: the same jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def swell(home: Path, *words: str, code: int = 0) -> str:
    env = {**os.environ, "SWELL_HOME": str(home)}
    env.pop("SWELL_URL", None)
    command = [sys.executable, "-m", "swell", *words]
    home.mkdir(mode=0o700, exist_ok=True)
    empty = home.parent / "empty"  # `run` takes a snapshot of where it is called
    empty.mkdir(exist_ok=True)
    done = subprocess.run(command, env=env, cwd=empty, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stdout + done.stderr


@pytest.fixture
def homes(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "one", tmp_path / "two"


def test_a_copy_made_while_the_daemon_runs_has_the_same_jobs_elsewhere(
    homes: tuple[Path, Path], tmp_path: Path
) -> None:
    one, two = homes
    copy = tmp_path / "copy.db"
    swell(one, "up", "--gpus", "1")
    try:
        swell(one, "run", "--", "true")
        swell(one, "run", "--", "sh", "-c", "exit 3", code=1)
        said = swell(one, "backup", str(copy))
        assert "copied 2 jobs" in said
        assert "verified" in said
        assert "is there already" in swell(one, "backup", str(copy), code=1)
        assert "running already" in swell(one, "restore", str(copy), code=2)
        jobs = json.loads(swell(one, "ls", "--all", "--json"))
    finally:
        swell(one, "down")
    assert "restored 2 jobs" in swell(two, "restore", str(copy))
    swell(two, "up", "--gpus", "1")
    try:
        assert json.loads(swell(two, "ls", "--all", "--json")) == jobs
    finally:
        swell(two, "down")
    again = swell(two, "restore", str(copy))
    assert "the database of before is" in again
