"""Another database over an old home, with a real daemon: no job finds what a job before it left under the same id."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from harness import ROOT, Daemon, daemon, eventually

TRAINS = """
mkdir -p "$SWELL_CHECKPOINT_DIR"
echo "before: $(cat "$SWELL_CHECKPOINT_DIR/last.pt" made-here 2>/dev/null)"
echo {mine} | tee "$SWELL_CHECKPOINT_DIR/last.pt" made-here
"""


def trained(served: Daemon, mine: str) -> int:
    (job,) = served.submit(command=["sh", "-c", TRAINS.format(mine=mine)], gpus=0)
    eventually(lambda: served.get(f"/v1/jobs/{job}")["state"] == "completed", 20)
    return job


def content(home: Path, jobs: list[int]) -> dict[str, bytes]:
    """What there is of these jobs, byte for byte."""
    found = [path for job in jobs for path in (*home.glob(f"runs/{job}.*/**/*"), *home.glob(f"*/{job}/**/*"))]
    return {str(path.relative_to(home)): path.read_bytes() for path in found if path.is_file()}


def log_of(home: Path, job: int) -> str:
    return (home / f"runs/{job}.1/0/log").read_text()


def doctor(home: Path) -> str:
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "src"), "SWELL_HOME": str(home)}
    return subprocess.run([sys.executable, "-m", "swell", "doctor"], env=env, stdout=subprocess.PIPE, text=True).stdout


def forget_database(home: Path, backup: Path | None = None) -> None:
    for path in home.glob("swell.db*"):
        path.unlink()
    for path in backup.glob("swell.db*") if backup else ():
        shutil.copy(path, home)


def test_never_finds_files_of_another_job_after_the_database_was_deleted(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with daemon(home) as served:
        old = [trained(served, "old"), trained(served, "old")]
        served.stop()
        before = content(home, old)
        assert {f"checkpoints/{old[-1]}/last.pt", f"work/{old[-1]}/made-here"} < set(before)
        forget_database(home)

        served.start()
        assert served.request("GET", "/v1/jobs/last")[0] == 404
        assert served.request("DELETE", f"/v1/jobs/{old[0]}")[0] == 404
        status, answer = served.request("POST", "/v1/jobs", {"command": ["true"], "gpus": 0, "depends_on": [old[0]]})
        assert (status, f"wait for job {old[0]}, which does not exist" in answer["detail"]) == (404, True)
        assert served.get("/v1/leftovers")["unknown"] == {"jobs": 2, "ids": [old]}
        assert "note  files      of 2 jobs of another database (ids 1 to 2)" in doctor(home)
        new = trained(served, "new")
        assert new == old[-1] + 1
        assert log_of(home, new).splitlines() == ["before: ", "new"]

        served.kill()  # the ids stay skipped, and their files are nobody's to delete
        served.start()
        assert trained(served, "newer") == new + 1
        assert content(home, old) == before
        assert f"new jobs begin with {new}" in (home / "daemon.log").read_text()


def test_never_finds_files_of_another_job_when_its_database_is_back(tmp_path: Path) -> None:
    """A job that waited there has no files that would tell its id to the database used in between."""
    home, backup, go = tmp_path / "home", tmp_path / "backup", tmp_path / "go"
    with daemon(home) as served:
        (gate,) = served.submit(command=["sh", "-c", f"until [ -e {go} ]; do sleep 0.1; done"], gpus=0)
        (waits,) = served.submit(command=["sh", "-c", TRAINS.format(mine="waited")], gpus=0, depends_on=[gate])
        served.stop()
        shutil.copytree(home, backup, ignore=shutil.ignore_patterns("notify"))
        forget_database(home)

        served.start()
        assert trained(served, "other") == waits + 1
        served.stop()
        forget_database(home, backup)

        served.start()
        go.touch()
        eventually(lambda: served.get(f"/v1/jobs/{waits}")["state"] == "completed", 20)
        assert log_of(home, waits).splitlines() == ["before: ", "waited"]
        assert trained(served, "third") == waits + 2


def test_never_finds_files_of_another_job_after_an_older_database_was_brought_back(tmp_path: Path) -> None:
    home, backup = tmp_path / "home", tmp_path / "backup"
    with daemon(home) as served:
        known = trained(served, "known")
        served.stop()
        shutil.copytree(home, backup, ignore=shutil.ignore_patterns("notify"))
        served.start()
        lost = trained(served, "lost")
        served.stop()
        before = content(home, [known, lost])
        forget_database(home, backup)

        served.start()
        assert served.get("/v1/jobs/last")["id"] == known
        new = trained(served, "new")
        assert new == lost + 1
        assert log_of(home, new).splitlines() == ["before: ", "new"]
        assert content(home, [known, lost]) == before
