"""What `swell batch` does beside its jobs: patterns of files, results that arrive whole, daemons that are away, lines
above a progress bar."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest

from swell.cli import patience
from swell.cli.batch_patterns import from_here
from swell.cli.batch_results import Results
from swell.cli.batch_room import check_fits, kinds_of
from swell.cli.patience import patiently
from swell.client.errors import DaemonUnreachable
from swell.client.http import Client
from swell.jobfile.batchfile import Requirements, job_document, read_batch
from swell.jobfile.problems import JobFileError


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (["."], ()),
        (["./", "*.py"], ()),
        (["./data", "a//b/", "*.pt", "/top"], ("data", "a/b/", "*.pt", "/top")),
        ([], ()),
    ],
)
def test_patterns_are_written_as_seen_from_here(written: list[str], meant: tuple[str, ...]) -> None:
    assert from_here(written) == meant


def test_a_whole_path_of_something_in_here_is_a_pattern_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert from_here([f"{tmp_path}/data"]) == ("data",)
    with pytest.raises(click.UsageError, match="is outside of this directory"):
        from_here(["../other"])


# -- results ----------------------------------------------------------------------------------------------------------


class Here:
    """A daemon on this machine with one job, whose files are in `work`."""

    def __init__(self, work: Path) -> None:
        self.address = SimpleNamespace(local=True)
        self._work = work

    def get(self, _: str) -> dict[str, str]:
        return {"directory": str(self._work), "submitted": "", "machine": ""}

    def raw(self, _: str, **__: object) -> list[bytes]:
        return [b"both ", b"streams"]


def ended(tmp_path: Path) -> tuple[Client, dict[str, Any]]:
    work = tmp_path / "work"
    work.mkdir()
    for name, text in (("j.out", "out"), ("j.err", ""), ("a.pt", "a"), ("b.pt", "b")):
        (work / name).write_text(text)
    return cast(Client, Here(work)), {"name": "j", "id": 7, "started_s": 1.0}


def found_in(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_never_half_of_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client, job = ended(tmp_path)
    results = Results(root=tmp_path / "job_results")

    def dies(*_: object, **__: object) -> int:
        (tmp_path / "job_results/.j.7.part/files/a.pt").write_text("a")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("swell.cli.batch_results.copy", dies)
        with pytest.raises(KeyboardInterrupt):
            results.collect(client, job)
    assert not results.exist("j")
    results.collect(client, job)
    assert found_in(results.root) == ["j.err", "j.out", "j/a.pt", "j/b.pt"]


def test_results_take_the_place_of_older_ones_as_a_whole(tmp_path: Path) -> None:
    client, job = ended(tmp_path)
    root = tmp_path / "job_results"
    (root / "j").mkdir(parents=True)
    (root / "j/old.pt").touch()
    (root / ".j.6.part/files").mkdir(parents=True)
    (root / ".j2.8.part/files").mkdir(parents=True)
    Results(root=root, patterns=("a.*",)).collect(client, job)
    assert found_in(root) == ["j.err", "j.out", "j/a.pt"]
    assert [path.name for path in root.glob(".*")] == [".j2.8.part"]


def test_a_line_that_removed_its_output_has_its_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client, job = ended(tmp_path)
    for stream in ("j.out", "j.err"):
        (tmp_path / "work" / stream).unlink()
    Results(root=tmp_path / "r").collect(client, job)
    assert (tmp_path / "r/j.out").read_text() == "both streams"
    assert found_in(tmp_path / "r") == ["j.out", "j/a.pt", "j/b.pt"]
    assert "the job removed the file of its output" in capsys.readouterr().err


# -- a daemon that restarts -------------------------------------------------------------------------------------------


def test_a_daemon_that_is_away_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(patience, "AGAIN_S", 0.0)
    answers: list[object] = [DaemonUnreachable("gone"), DaemonUnreachable("gone"), 3]

    def ask() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert patiently(ask) == 3
    assert capsys.readouterr().err.count("the daemon does not answer; jobs that run go on") == 1


def test_whoever_gives_up_hears_how_to_come_back() -> None:
    def ask() -> None:
        raise DaemonUnreachable("gone")

    with pytest.raises(DaemonUnreachable, match=r"gone\. Jobs that run go on; later: swell batch attach 7"):
        patiently(ask, "swell batch attach 7", away_s=0.0)


# -- lines that cannot run --------------------------------------------------------------------------------------------


class Validates:
    def __init__(self, **answer: object) -> None:
        self._answer = {"problems": [], "jobs": [], **answer}

    def request(self, *_: object) -> dict[str, object]:
        return self._answer


def kinds(answer: Validates) -> Any:
    lines = read_batch("echo 1\necho 2 #swell gpus=9\necho 3\necho 4 #swell gpus=9\n", "b.sh")
    return kinds_of(cast(Client, answer), lines, [job_document(line, Requirements()) for line in lines])


def test_lines_that_fit_nowhere_are_named() -> None:
    fits, never = {"fits": True, "why": ""}, {"fits": False, "why": "it needs 9 GPUs; lower gpus"}
    with pytest.raises(JobFileError, match=r"^lines 2, 4: it needs 9 GPUs \(lower gpus\)$"):
        check_fits(kinds(Validates(jobs=[fits, never])))
    check_fits(kinds(Validates(jobs=[fits, fits])))


def test_a_field_that_is_wrong_is_said_of_its_lines() -> None:
    problem = {"path": "jobs[1].priority", "what": "'x' is not a priority", "fix": "write low"}
    with pytest.raises(JobFileError, match=r"^lines 2, 4: priority: 'x' is not a priority \(write low\)$"):
        kinds(Validates(problems=[problem]))


# -- on a terminal ----------------------------------------------------------------------------------------------------

SAYS = """
from swell.cli.batch_follow import _bar
from swell.cli.terminal import say
with _bar() as bar:
    bar.add_task("", total=3)
    say("started: a")
    say("WARNING: b", err=True)
"""


def test_lines_go_above_the_progress_bar() -> None:
    pid, terminal = pty.fork()
    if pid == 0:  # pragma: no cover
        os.environ["TERM"] = "xterm"
        os.execv(sys.executable, [sys.executable, "-c", SAYS])
    said = b""
    while data := _read(terminal):
        said += data
    os.waitpid(pid, 0)
    for line in (b"started: a", b"WARNING: b"):
        assert b"\r\x1b[2K" + line + b"\r\n" in said, said.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # what Linux says when the last process has closed it
        return b""
