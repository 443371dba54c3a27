"""What a newcomer with only the docs tripped over: each is answered with what to do (docs/how-to/run-jobs.md)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from swell.cli import common, logs, show, wait
from swell.cli.submit import read_jobs
from swell.client.errors import DaemonUnreachable


@pytest.mark.parametrize(("name", "runs"), [("train.py", "python train.py"), ("go.sh", "bash go.sh")])
def test_a_program_is_not_a_job_file(name: str, runs: str) -> None:
    with pytest.raises(click.BadParameter, match=f"{name} is a program, not a job file; `swell run -- {runs}`"):
        read_jobs(Path(name))


class StillStarting:
    def __init__(self, *_: object, **__: object) -> None:
        pass

    def poll(self) -> None:
        """It has not ended."""


def test_a_daemon_that_is_slow_to_start_is_not_said_to_have_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "START_S", 1.0)
    monkeypatch.setattr("swell.cli.common.subprocess.Popen", StillStarting)
    with pytest.raises(DaemonUnreachable, match="has not answered within 1 s: this machine may be busy"):
        common.start_daemon(tmp_path / "home", [])


def test_a_daemon_that_a_full_disk_left_speechless_is_said_to_lack_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ended(StillStarting):
        def poll(self) -> int:  # type: ignore[override]
            return 1

    monkeypatch.setattr("swell.cli.common.subprocess.Popen", Ended)
    monkeypatch.setattr("swell.cli.common.shutil.disk_usage", lambda _: SimpleNamespace(free=4096))
    with pytest.raises(DaemonUnreachable, match="is full; free some space"):
        common.start_daemon(tmp_path / "home", [])


@pytest.mark.parametrize("verb", [logs.logs, show.show, wait.wait])
def test_a_verb_without_its_job_says_how_jobs_are_named(verb: click.Command) -> None:
    done = CliRunner().invoke(verb, [])
    assert done.exit_code == 2
    assert "A job is named by its id, its name or `last`; `swell ls` lists them." in done.output
