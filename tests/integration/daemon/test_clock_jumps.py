"""The machine's clock is set by hours while jobs run: limits and back-offs keep to the time that really passes.

The wall clock of the daemon alone is false, by a small library that is preloaded (compiled here with gcc).
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import Daemon, daemon, eventually

STUB = Path(__file__).parents[2] / "stubs/walltime.c"
HOUR_S = 3600


class Wall:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.set(0)

    def set(self, off_s: int) -> None:
        self.path.write_text(f"{off_s:+020d}")  # of one length, so that no reader sees half of it


@pytest.fixture
def wall(tmp_path: Path) -> Wall:
    return Wall(tmp_path / "offset")


@pytest.fixture
def served(tmp_path: Path, wall: Wall) -> Iterator[Daemon]:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc to compile a library that makes the wall clock false")
    library = tmp_path / "walltime.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, STUB, "-ldl"], check=True)
    env = {"LD_PRELOAD": str(library), "WALLTIME_OFFSET": str(wall.path)}
    with daemon(tmp_path / "home", gpus=4, env=env) as made:
        yield made


def state(served: Daemon, job: int) -> str:
    return str(served.get(f"/v1/jobs/{job}")["state"])


def submit(served: Daemon, *command: str, **more: object) -> int:
    job = served.submit(name="j", command=list(command), gpus=1, cpus=0, grace=1, **more)[0]
    if command[0] == "sleep":
        eventually(lambda: state(served, job) == "running", 20, what="it runs")
    return job


def test_a_clock_that_jumps_ahead_ends_nothing_early(served: Daemon, wall: Wall) -> None:
    long = submit(served, "sleep", "1000", time_limit=120)
    before_s = served.get("/v1/health")["now_s"]
    wall.set(2 * HOUR_S)
    short = submit(served, "true")
    eventually(lambda: state(served, short) == "completed", 20, what="another job comes and goes")
    assert state(served, long) == "running"
    assert served.get("/v1/health")["now_s"] - before_s < 60
    [run] = served.get(f"/v1/jobs/{short}/runs")["runs"]
    assert 0 <= run["ended_s"] - run["started_s"] < 60


def test_a_clock_that_jumps_back_suspends_no_limit_and_no_back_off(served: Daemon, wall: Wall) -> None:
    limited = submit(served, "sleep", "1000", time_limit=5)
    failing = submit(served, "false", retries=1, backoff=2)
    eventually(lambda: served.get(f"/v1/jobs/{failing}")["attempts"] == 1, 20, what="it has failed once")
    wall.set(-3 * HOUR_S)
    eventually(lambda: state(served, limited) == "failed", 30, what="its limit is over")
    eventually(lambda: state(served, failing) == "failed", 30, what="its second attempt")


def test_a_daemon_that_starts_again_under_a_false_clock_goes_on_in_time(served: Daemon, wall: Wall) -> None:
    job = submit(served, "sleep", "1000", time_limit=300)
    before_s, began = served.get("/v1/health")["now_s"], time.monotonic()
    served.kill()
    wall.set(2 * HOUR_S)
    served.start()
    passed_s = served.get("/v1/health")["now_s"] - before_s
    assert passed_s == pytest.approx(time.monotonic() - began, abs=2.0)
    other = submit(served, "true")
    eventually(lambda: state(served, other) == "completed", 20, what="another job comes and goes")
    assert state(served, job) == "running"
