"""Helpers for tests with real processes: who is alive, and a driver to kill."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from swell.shim import processes as proc
from swell.shim import shim

DRIVER = Path(__file__).with_name("driver.py")
SRC = Path(shim.__file__).parents[2]
TESTS = Path(__file__).parents[2]


def is_alive(pid: int) -> bool:
    """A zombie is dead: it waits only for its parent."""
    stat = proc.stat_of(pid)
    return stat is not None and stat.alive


def wait_until(true: Callable[[], bool], what: str, limit_s: float = 20.0) -> None:
    give_up_s = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < give_up_s, f"not in {limit_s} s: {what}"
        time.sleep(0.01)


def pid_in(path: Path) -> int:
    """A pid that a script wrote into a file, once it is there."""
    wait_until(lambda: path.exists() and path.read_text().strip().isdigit(), f"a pid in {path}")
    return int(path.read_text())


class Driver:
    def __init__(self, runs: Path, known: list[str], launches: dict[str, list[list[str]]]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(DRIVER), str(runs), json.dumps(known), json.dumps(launches)],
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": f"{SRC}:{TESTS}", "PATH": "/usr/bin:/bin"},
        )

    def told(self) -> dict[str, str]:
        """The next observation."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the driver ended without telling more"
        result: dict[str, str] = json.loads(line)
        return result

    def until(self, kind: str, run: str) -> dict[str, str]:
        while True:
            told = self.told()
            if (told["kind"], told["run"]) == (kind, run):
                return told

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def driving(
    runs: Path, known: list[str] | None = None, launches: dict[str, list[list[str]]] | None = None
) -> Iterator[Driver]:
    driver = Driver(runs, known or [], launches or {})
    try:
        yield driver
    finally:
        driver.kill()
