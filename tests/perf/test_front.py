"""What people wait for at the command line: CPU seconds of `swell --help` and `swell ls`, a thousand jobs cancelled."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from figures import record
from harness import ROOT, Daemon, daemon

pytestmark = pytest.mark.perf
TIMES = 15


def swell(home: Path, *args: str) -> tuple[float, float, str]:
    """(CPU seconds, seconds, output) of one command."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SWELL_HOME": str(home)}
    before, began = os.times(), time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "swell", *args], env=env, capture_output=True, text=True, check=True)
    took, after = time.perf_counter() - began, os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return cpu_s, took, done.stdout


def cpu_s(home: Path, *args: str) -> float:
    swell(home, *args)  # the first one compiles
    return statistics.median(swell(home, *args)[0] for _ in range(TIMES))


def waiting(served: Daemon, jobs: int) -> None:
    gate = served.post("/v1/jobs", {"name": "gate", "command": "sleep 600", "gpus": 0})["ids"][0]
    served.post("/v1/jobs", {"name": "waits", "command": "true", "gpus": 0, "depends_on": [gate], "array": jobs})


def test_the_command_line_starts_fast(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with daemon(home) as served:
        waiting(served, 100)
        figures = {
            "help_cpu_s": cpu_s(home, "--help"),
            "ls_cpu_s": cpu_s(home, "ls"),
            "show_cpu_s": cpu_s(home, "show", "last"),
        }
    record("front", figures)


def test_a_thousand_jobs_cancelled(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with daemon(home) as served:
        waiting(served, 1000)
        _, took, out = swell(home, "cancel", "--name", "waits-*")
        assert "cancelled 1000 jobs" in out
    record("front", {"cancel_1000_s": took})
