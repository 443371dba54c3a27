"""Disk space of jobs, with a real daemon: kept as long as the job is, given back when it is removed."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import ROOT, Daemon, daemon, eventually

WRITES = 'mkdir -p "$SWELL_CHECKPOINT_DIR" && echo x | tee "$SWELL_CHECKPOINT_DIR/last.pt" made-here'


def finished(served: Daemon, **job: object) -> int:
    (made,) = served.submit(command=["sh", "-c", WRITES], gpus=0, **job)
    eventually(lambda: served.get(f"/v1/jobs/{made}")["state"] == "completed", 20)
    return made


def left(home: Path, job: int) -> list[str]:
    found = [*home.glob(f"runs/{job}.*/0/log"), *home.glob(f"*/{job}/**/*")]
    return sorted(str(path.relative_to(home)) for path in found if path.is_file())


def everything(job: int) -> list[str]:
    return [f"checkpoints/{job}/last.pt", f"runs/{job}.1/0/log", f"work/{job}/made-here"]


def rm(home: Path, *jobs: int, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = swell(home, "rm", "--yes", *map(str, jobs))
    assert done.returncode == code, done
    return done


def swell(home: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "src"), "SWELL_HOME": str(home)}
    command = [sys.executable, "-m", "swell", *args]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


@contextlib.contextmanager
def undeletable(path: Path) -> Iterator[None]:
    """For root, too."""
    lock, unlock = (["chattr", "+i", str(path)], ["chattr", "-i", str(path)])
    if os.geteuid() != 0:
        folder = str(path.parent.parent)
        lock, unlock = (["chmod", "500", folder], ["chmod", "700", folder])
    made = subprocess.run(lock, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no file can be protected here: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(unlock, check=True)


def test_a_removed_job_gives_its_disk_space_back_and_one_that_only_ended_keeps_everything(tmp_path: Path) -> None:
    home, shared = tmp_path / "home", tmp_path / "shared"
    with daemon(home) as served:
        kept, removed = finished(served), finished(served)
        sharing = finished(served, checkpoint_dir=str(shared))
        (waits,) = served.submit(command=["true"], gpus=0, depends_on=[removed, kept])
        (running,) = served.submit(command=["sleep", "100"], gpus=0)
        eventually(lambda: served.get(f"/v1/jobs/{waits}")["state"] == "completed", 20)

        said = rm(home, removed, sharing, running, 99, code=2)
        assert f"removed 2 jobs: {removed}, {sharing}" in said.stdout
        assert f"`swell cancel {running}` first" in said.stderr
        eventually(lambda: not left(home, removed) and not left(home, sharing), 10)
        assert served.request("GET", f"/v1/jobs/{removed}")[0] == 404
        assert left(home, kept) == everything(kept)
        assert [path.name for path in shared.rglob("*") if path.is_file()] == ["last.pt"]

        served.stop()
        served.start()
        assert left(home, kept) == everything(kept)


def test_what_cannot_be_deleted_is_told_by_doctor_and_deleted_as_soon_as_it_can_be(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with daemon(home) as served:
        removed = finished(served)
        held = home / f"checkpoints/{removed}/last.pt"
        with undeletable(held):
            rm(home, removed)
            eventually(lambda: served.get("/v1/leftovers")["undeleted"], 10)
            assert held.parent.exists()
            assert not (home / f"work/{removed}").exists()
            said = swell(home, "doctor")
            (line,) = [line for line in said.stdout.splitlines() if f"removed job {removed}" in line]
            assert said.returncode == 1
            assert line.startswith("FAIL  files")
            assert "not permitted" in line or "Permission denied" in line
            assert "tries again by itself" in said.stdout
        eventually(lambda: not held.parent.exists(), 30)
        eventually(lambda: not served.get("/v1/leftovers")["undeleted"], 10)
        assert not [line for line in swell(home, "doctor").stdout.splitlines() if line.startswith("FAIL  files")]


def test_what_a_crash_left_of_a_removed_job_is_deleted_at_the_next_start(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with daemon(home) as served:
        kept, removed = finished(served), finished(served)
        copy = tmp_path / "copy"
        for name in ("runs", "work", "checkpoints"):
            shutil.copytree(home / name, copy / name, ignore=shutil.ignore_patterns("notify"))
        assert served.request("DELETE", f"/v1/jobs/{removed}")[0] == 200
        eventually(lambda: not left(home, removed), 10)
        served.kill()
        shutil.copytree(copy, home, dirs_exist_ok=True)  # as if it had died right after the answer
        (home / "checkpoints" / "500").mkdir()
        assert left(home, removed) == everything(removed)
        served.start()
        eventually(lambda: not left(home, removed), 10)
        assert left(home, kept) == everything(kept)
        assert (home / "checkpoints" / "500").is_dir()


def test_a_job_that_another_one_waits_for_stays(tmp_path: Path) -> None:
    with daemon(tmp_path / "home") as served:
        first = finished(served)
        (running,) = served.submit(command=["sleep", "100"], gpus=0, depends_on=[first])
        status, answer = served.request("DELETE", f"/v1/jobs/{first}")
        assert (status, f"job {running} depends on it" in answer["detail"]) == (409, True)
        assert left(tmp_path / "home", first) == everything(first)
