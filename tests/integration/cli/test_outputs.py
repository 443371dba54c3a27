"""Where a job's files are, fetching them, and removing them only when somebody said yes."""

import json
import os
import pty
from typing import Any

import pytest

from integration.cli.conftest import Shell


@pytest.fixture
def job(sh: Shell) -> dict[str, Any]:
    (sh.work / "train.py").write_text("1")
    done = sh("run", "--gpus", 0, "--name", "writes", "--", "mkdir -p results; echo ok > results/model.pt; echo hi")
    assert done.out == "hi\n"
    view: dict[str, Any] = json.loads(sh("show", "writes", "--json").out)
    assert f"files in {view['kept']['directory']}  |  swell fetch {view['id']}" in done.err
    return view


def test_show_and_json_say_where_the_files_are(sh: Shell, job: dict[str, Any]) -> None:
    directory = sh.home / "work" / str(job["id"])
    assert job["kept"]["directory"] == str(directory)
    assert job["kept"]["working_copy"]["bytes"] > 0
    assert f"files        {directory}" in sh("show", job["id"]).out
    ran = json.loads(sh("run", "--json", "--gpus", 0, "--", "true").out)
    assert ran["kept"]["directory"] == str(sh.home / "work" / str(ran["id"]))


def test_nothing_is_said_of_files_when_none_were_written(sh: Shell) -> None:
    assert "swell fetch" not in sh("run", "--gpus", 0, "--", "true").err


def test_fetch_brings_what_it_wrote(sh: Shell, job: dict[str, Any]) -> None:
    done = sh("fetch", job["id"])
    assert done.out == "results/model.pt\n"
    assert (sh.work / f"writes-{job['id']}" / "results" / "model.pt").read_text() == "ok\n"
    assert "--replace" in sh("fetch", job["id"], code=2).err
    sh("fetch", job["id"], "*.py", "--into", "there")
    assert [path.name for path in (sh.work / "there").iterdir()] == ["train.py"]
    assert "no file in" in sh("fetch", job["id"], "*.nothing", code=2).err
    assert json.loads(sh("fetch", job["id"], "--list", "--json").out)["files"] == ["results/model.pt"]


def test_fetch_from_a_daemon_elsewhere_brings_the_same_through_it(
    sh: Shell, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = json.loads((sh.home / "daemon.json").read_text())["url"]
    token = (sh.home / "token").read_text().strip()
    for name, value in (("SWELL_URL", address), ("SWELL_TOKEN", token)):
        monkeypatch.setitem(sh.env, name, value)
    assert sh("fetch", job["id"], "--into", "far").out == "results/model.pt\n"
    assert [str(path.relative_to(sh.work)) for path in (sh.work / "far").rglob("*.pt")] == ["far/results/model.pt"]
    assert "--replace" in sh("fetch", job["id"], "--into", "far", code=2).err
    assert "no file in" in sh("fetch", job["id"], "*.nothing", code=2).err


def test_a_job_that_ran_in_place_left_its_files_there(sh: Shell) -> None:
    job = json.loads(sh("run", "--json", "--no-snapshot", "--gpus", 0, "--", "true").out)["id"]
    assert f"ran in {sh.work} itself" in sh("fetch", job, code=2).err


def test_rm_says_what_it_would_delete_and_asks_nobody_who_is_not_there(sh: Shell, job: dict[str, Any]) -> None:
    done = sh("rm", job["id"], code=2)
    assert f"this removes 1 job: {job['id']} (writes)" in done.err
    assert "of working copies" in done.err
    assert "--yes" in done.err
    assert (sh.home / "work" / str(job["id"])).is_dir()


def on_a_terminal(sh: Shell, *args: object, answer: bytes) -> tuple[int, str]:
    """What is printed to somebody who types the answer."""
    here, there = pty.openpty()
    process = sh.start(*args, stdin=there, stdout=there, stderr=there)
    os.close(there)
    os.write(here, answer)
    said = b""
    while True:
        try:
            data = os.read(here, 4096)
        except OSError:
            break
        if not data:
            break
        said += data
    os.close(here)
    return process.wait(timeout=30), said.decode()


def test_rm_asks_on_a_terminal(sh: Shell, job: dict[str, Any]) -> None:
    code, said = on_a_terminal(sh, "rm", job["id"], answer=b"n\n")
    assert code == 1
    assert "remove it?" in said
    assert "nothing was removed" in said
    code, said = on_a_terminal(sh, "rm", job["id"], answer=b"y\n")
    assert code == 0
    assert "removed 1 job" in said


def test_rm_takes_patterns_and_all_that_have_ended(sh: Shell, job: dict[str, Any]) -> None:
    sh("run", "--gpus", 0, "--name", "other", "--", "true")
    assert str(job["id"]) in sh("rm", "wri*", "--yes").out
    assert "no job that has ended is called wri*" in sh("rm", "wri*", "--yes", code=2).err
    sh("rm", "--ended", "--yes")
    assert json.loads(sh("ls", "--ended", "--json").out) == []
    assert "which jobs?" in sh("rm", code=2).err
