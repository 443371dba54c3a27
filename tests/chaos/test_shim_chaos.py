"""kill -9 of whoever observes, again and again, while short runs come and go: nothing lost, nothing started twice,
nothing left. The truth is written by the runs themselves."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import pytest

from integration.executors.processes import Driver, is_alive, wait_until
from swell.shim import ask, files
from swell.shim import processes as proc

SCRIPT = """
echo start $$ >> {truth}/{job}
setsid sh -c 'echo child $$ >> {truth}/{job}; exec sleep 1000' &
(setsid {clean} sh -c 'echo child $$ >> {truth}/{job}; exec sleep 1000' &)
sleep {lasts_s}
echo end >> {truth}/{job}
exit {code}
"""


def _script(truth: Path, job: int, **words: object) -> list[str]:
    return ["/bin/sh", "-c", SCRIPT.format(truth=truth, job=job, code=job % 3, **words)]


@pytest.mark.chaos
@pytest.mark.parametrize(("jobs", "kills", "seed"), [(12, 8, 1), pytest.param(120, 100, 2, marks=pytest.mark.slow)])
def test_never_lost_never_twice_never_left_whatever_is_killed(tmp_path: Path, jobs: int, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    truth, runs = tmp_path / "truth", tmp_path / "runs"
    truth.mkdir()
    launches = {f"{job}.1": [_script(truth, job, clean="env -i", lasts_s=rng.random())] for job in range(1, jobs + 1)}
    for kill in range(kills):
        come = list(launches)[: jobs * (kill + 1) // kills]  # they keep coming, so that every kill finds work under way
        pending = {run: launches[run] for run in come if not _recorded(runs / run)}
        assert pending, "nothing under way: this kill would prove nothing"
        driver = Driver(runs, list(pending), pending)
        _strike(driver, rng)
    _finish(runs, launches)
    for job in range(1, jobs + 1):
        _check(truth / str(job), runs / f"{job}.1", code=job % 3)


def _strike(driver: Driver, rng: random.Random) -> None:
    """Kill it at a random moment after it has begun to work: at its first word, or a little later."""
    driver.told()
    time.sleep(rng.choice((0.0, 0.0, rng.uniform(0.0, 0.3))))
    driver.kill()


def _recorded(run: Path) -> bool:
    return (run / "0/swept").exists()


def _finish(runs: Path, launches: dict[str, list[list[str]]]) -> None:
    """A last observer, left alone: it must hear the end of every run."""
    driver = Driver(runs, list(launches), launches)
    try:
        gone: dict[str, str] = {}
        while len(gone) < len(launches):
            told = driver.told()
            if told["kind"] == "RunGone":
                gone[told["run"]] = told["reason"]
        assert set(gone.values()) == {"finished", "user-error"}
    finally:
        driver.kill()


def _check(truth: Path, run: Path, code: int) -> None:
    words = truth.read_text().split()
    assert words.count("start") == 1, f"{truth}: started {words.count('start')} times"
    assert words.count("end") == 1, f"{truth}: lost"
    assert json.loads((run / "0/exit.json").read_text())["code"] == code
    pids = [int(word) for word in words if word.isdigit()]
    assert len(pids) == 3
    assert not [pid for pid in pids if is_alive(pid)], f"{truth}: left behind"


@pytest.mark.chaos
def test_never_an_orphan_when_shims_are_killed(tmp_path: Path) -> None:
    """Each shim is killed at a random moment of its life; what it held dies with it or is swept, also what wiped its
    environment and left its session."""
    rng = random.Random(3)
    truth, runs, jobs = tmp_path / "truth", tmp_path / "runs", 12
    truth.mkdir()
    launches = {f"{job}.1": [_script(truth, job, clean="env -i", lasts_s=1000)] for job in range(1, jobs + 1)}
    driver = Driver(runs, [], launches)
    try:
        for run in launches:
            wait_until((runs / run / "0/claim").exists, f"the claim of {run}")
            time.sleep(rng.uniform(0.0, 0.05))
            claimed = files.read_json(str(runs / run / "0/claim"))
            if claimed:
                proc.send(claimed["pid"], claimed["start"], 9)
            else:
                ask.stop(str(runs / run), [0], kill=True)
        gone: dict[str, str] = {}
        while len(gone) < jobs:
            told = driver.told()
            if told["kind"] == "RunGone":
                gone[told["run"]] = told["reason"]
        assert set(gone.values()) <= {"shim-lost", "stopped"}
        assert _none_alive(truth)
    finally:
        driver.kill()


def _none_alive(truth: Path) -> bool:
    pids = [int(word) for path in truth.iterdir() for word in path.read_text().split() if word.isdigit()]
    return not [pid for pid in pids if pid != os.getpid() and is_alive(pid)]
