"""Nothing depends on the daemon having stayed alive: its hands are killed and others take over."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.executors.processes import Driver, driving, is_alive, pid_in, wait_until
from swell.shim import ask, shim
from swell.shim import processes as proc


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "runs"
    yield path
    for run in path.glob("*.*"):
        ask.stop(str(run), [int(rank.name) for rank in run.iterdir() if rank.name.isdigit()], kill=True)


def shell(text: str) -> list[str]:
    return ["/bin/sh", "-c", text]


def test_a_killed_observer_loses_nothing(runs: Path, tmp_path: Path) -> None:
    """The run goes on, its output is whole, its end is recorded while nobody looks, and the next one hears of it."""
    gate = tmp_path / "gate"
    script = f"echo begun; until [ -e {gate} ]; do sleep 0.02; done; echo done; exit 7"
    with driving(runs, launches={"1.1": [shell(script)]}) as first:
        first.until("RunUp", "1.1")
    gate.touch()
    wait_until((runs / "1.1/0/swept").exists, "the shim's end")
    with driving(runs, known=["1.1"]) as second:
        assert second.until("RunGone", "1.1")["reason"] == "user-error"
    assert (runs / "1.1/0/log").read_text() == "begun\ndone\n"


def test_a_running_run_is_adopted_and_can_be_stopped_by_its_new_observer(runs: Path) -> None:
    with driving(runs, launches={"1.1": [shell("exec sleep 1000")]}) as first:
        first.until("RunUp", "1.1")
    with driving(runs, known=["1.1", "1.2"]) as second:
        assert second.told() == {"kind": "RunUp", "run": "1.1", "reason": ""}
        ask.stop(str(runs / "1.1"), [0], kill=False)
        assert second.told() == {"kind": "RunGone", "run": "1.1", "reason": "stopped"}


def test_never_two_starts_when_two_processes_launch_the_same_runs(runs: Path, tmp_path: Path) -> None:
    launches = {f"{job}.1": [shell(f"echo start >> {tmp_path}/{job}; sleep 0.2")] * 2 for job in range(1, 9)}
    drivers = [Driver(runs, [], launches) for _ in range(3)]
    try:
        for driver in drivers[:1]:
            gone = 0
            while gone < len(launches):
                gone += driver.told()["kind"] == "RunGone"
    finally:
        for driver in drivers:
            driver.kill()
    for job in range(1, 9):
        assert (tmp_path / str(job)).read_text() == "start\nstart\n", f"job {job}: one start a rank"


def test_never_two_starts_from_many_shims_of_one_worker(runs: Path, tmp_path: Path) -> None:
    """Late and early ones, without an executor that would know better: there is one claim."""
    folder = runs / "1.1/0"
    folder.mkdir(parents=True)
    argv = shell(f"echo start >> {tmp_path}/truth; sleep 0.2")
    request = {"run": "1.1", "rank": 0, "argv": argv, "env": {"PATH": "/usr/bin:/bin"}, "cwd": "/", "grace_s": 1}
    (folder / "request.json").write_text(json.dumps(request))
    hold = ["python3", "-ISs", shim.__file__, "hold", str(folder)]
    for process in [subprocess.Popen(hold) for _ in range(5)]:
        assert process.wait(timeout=20) == 0
    wait_until((folder / "swept").exists, "the end of the worker")
    subprocess.run(hold, check=True, timeout=20)
    wait_until(lambda: not ask.is_held(str(folder)), "the end of the late shim")
    time.sleep(0.1)
    assert (tmp_path / "truth").read_text() == "start\n"


def test_the_shim_belongs_to_nobody_and_outlives_the_nursery(runs: Path) -> None:
    with driving(runs, launches={"1.1": [shell("exec sleep 1000")]}) as driver:
        driver.until("RunUp", "1.1")
        claimed = json.loads((runs / "1.1/0/claim").read_text())
        nursery = _nursery_of(driver.process.pid)
        stat = proc.stat_of(claimed["pid"])
        assert stat is not None
        assert stat.parent not in (nursery, driver.process.pid)
        assert os.getsid(claimed["pid"]) not in (os.getsid(nursery), os.getsid(driver.process.pid))
        assert os.readlink(f"/proc/{claimed['pid']}/cwd") == "/"
        own = ["/dev/null"] * 4 + [str(runs / "1.1/0/lock")]
        wait_until(
            lambda: _opened_by(claimed["pid"]) == own, "nothing shared with anybody, once it has told of its start"
        )
        os.kill(nursery, signal.SIGKILL)
        wait_until(lambda: not is_alive(nursery), "the nursery's death")
        assert ask.is_held(str(runs / "1.1/0"))
        ask.stop(str(runs / "1.1"), [0], kill=True)
        assert driver.until("RunGone", "1.1")["reason"] == "stopped"


def _opened_by(pid: int) -> list[str]:
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.append(os.readlink(path))
    return sorted(found)


def _nursery_of(parent: int) -> int:
    found = [pid for pid in proc.descendants(parent) if b"nursery" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(found) == 1
    return found[0]


def test_a_partly_started_gang_is_completed_by_the_next_launch(runs: Path, tmp_path: Path) -> None:
    """The daemon died between two workers: the missing one is started, the other is not started again."""
    argvs = [shell(f"echo {rank} >> {tmp_path}/started; exec sleep 1000") for rank in range(2)]
    with driving(runs, launches={"1.1": argvs}) as whole:
        whole.until("RunUp", "1.1")
    for name in ("claim", "lock", "up", "request.json", "log", "exit.tmp"):  # as if rank 1 had never been
        (runs / "1.1/1" / name).rename(tmp_path / name)
    with driving(runs, known=["1.1"], launches={"1.1": argvs}) as second:
        second.until("RunUp", "1.1")
        wait_until(lambda: sorted((tmp_path / "started").read_text().split()) == ["0", "1", "1"], "one more start")
        ask.stop(str(runs / "1.1"), [0, 1], kill=True)
        second.until("RunGone", "1.1")
    proc.send(*_shim_of(tmp_path), shim.KILL_NOW)


def _shim_of(folder: Path) -> tuple[int, int]:
    claimed = json.loads((folder / "claim").read_text())
    return claimed["pid"], claimed["start"]


def test_a_killed_shim_is_told_as_lost_and_what_it_held_is_swept(runs: Path, tmp_path: Path) -> None:
    """Also a grandchild in a session of its own."""
    script = f"setsid sh -c 'echo $$ > {tmp_path}/escaped; exec sleep 1000' & exec sleep 1000"
    with driving(runs, launches={"1.1": [shell(script)]}) as driver:
        driver.until("RunUp", "1.1")
        escaped = pid_in(tmp_path / "escaped")
        pid, start = _shim_of(runs / "1.1/0")
        assert proc.send(pid, start, signal.SIGKILL)
        assert driver.until("RunGone", "1.1")["reason"] == "shim-lost"
        assert not is_alive(escaped)
    with driving(runs, known=["1.1"], launches={"1.1": [shell(f"echo again > {tmp_path}/again")]}) as second:
        assert second.until("RunGone", "1.1")["reason"] == "shim-lost"
    assert not (tmp_path / "again").exists()


def test_a_claim_without_a_lock_is_lost_and_never_blames_who_has_its_pid_now(runs: Path, tmp_path: Path) -> None:
    """pids come round again: an innocent process has the pid of the dead shim."""
    with subprocess.Popen(["sleep", "1000"]) as innocent:
        try:
            folder = runs / "1.1/0"
            folder.mkdir(parents=True)
            (folder / "claim").write_text(json.dumps({"pid": innocent.pid, "start": 1, "mark": "0" * 32}))
            (folder / "lock").touch()
            member = {"rank": 0, "node": "here", "role": "worker", "gpus": []}
            (runs / "1.1/launch.json").write_text(json.dumps({"run": "1.1", "grace_s": 1.0, "members": [member]}))
            with driving(runs, known=["1.1"]) as driver:
                assert driver.until("RunGone", "1.1")["reason"] == "shim-lost"
            ask.stop(str(runs / "1.1"), [0], kill=True)
            assert not proc.send(innocent.pid, 1, signal.SIGKILL)
            time.sleep(0.05)
            assert is_alive(innocent.pid)
        finally:
            innocent.kill()


def test_a_run_stopped_before_it_was_claimed_never_starts(runs: Path, tmp_path: Path) -> None:
    """A late shim finds the claim taken."""
    folder = runs / "1.1/0"
    folder.mkdir(parents=True)
    ask.stop(str(runs / "1.1"), [0], kill=True)
    request = {"run": "1.1", "rank": 0, "argv": ["touch", str(tmp_path / "ran")], "env": {}, "cwd": "/", "grace_s": 1}
    (folder / "request.json").write_text(json.dumps(request))
    subprocess.run(["python3", "-ISs", shim.__file__, "hold", str(folder)], check=True, timeout=20)
    worker = ask.look(str(runs / "1.1"), [0])["workers"][0]
    assert (worker["stage"], worker["exit"]["failed"]) == ("ended", {"step": "stopped"})
    assert not (tmp_path / "ran").exists()


def test_a_shim_that_comes_after_the_stop_starts_nothing(runs: Path, tmp_path: Path) -> None:
    """The stop was written, but this worker not yet fenced."""
    folder = runs / "1.1/0"
    folder.mkdir(parents=True)
    (runs / "1.1/stop").touch()
    request = {"run": "1.1", "rank": 0, "argv": ["touch", str(tmp_path / "ran")], "env": {}, "cwd": "/", "grace_s": 1}
    (folder / "request.json").write_text(json.dumps(request))
    subprocess.run(["python3", "-ISs", shim.__file__, "hold", str(folder)], check=True, timeout=20)
    wait_until((folder / "swept").exists, "the shim's end")
    assert ask.look(str(runs / "1.1"), [0])["workers"][0]["exit"]["failed"] == {"step": "stopped"}
    assert not (tmp_path / "ran").exists()
