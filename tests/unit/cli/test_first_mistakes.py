"""What a newcomer with only the docs tripped over: each is answered with what to do (docs/how-to/run-jobs.md)."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from swell.cli import common, logs, show, wait
from swell.cli.main import swell
from swell.cli.sim import COLUMNS, WHICH, fitting
from swell.cli.submit import read_jobs
from swell.cli.times import Moment
from swell.client.errors import DaemonUnreachable
from swell.client.find import Address
from swell.core.errors import SwellError


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


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("submit", "swell submit job.yaml, or swell run -- python train.py"),
        ("run", "swell run --gpus 1-4 -- python train.py"),
        ("update 7", "swell update 7 gpus=2"),
        ("update 7 --gpus 2", "there is no option --gpus; write gpus=VALUE"),
        ("priority 7", "Write low, normal, high, urgent or a whole number"),
        ("exec 7", "swell exec 7 -- bash"),
        ("submit job.yaml --gpus 2", "there is no option --gpus; write --set gpus=VALUE"),
        ("submit job.yaml --time-limit 2h", "there is no option --time-limit; write --set time_limit=VALUE"),
        ("submit job.yaml --color red", "No such option '--color'"),
        ("--home /tmp/x ls", "--home goes behind the verb: swell ls --home"),
        ("--hme /tmp/x ls", "No such option '--hme'"),
        ("resize 7", "swell update 7 gpus=2"),
    ],
)
def test_what_was_left_out_or_is_no_option_is_answered_with_what_to_write(typed: str, answer: str) -> None:
    done = CliRunner().invoke(swell, typed.split())
    assert done.exit_code == 2
    assert answer in " ".join(done.output.split())


def test_one_option_that_holds_from_a_start_on_is_told_in_the_singular(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Daemon:
        address = Address(url="http://127.0.0.1:1", token="", local=True)

        def get(self, path: str) -> dict[str, object]:
            return {"nodes": [], "name": "swell", "placer": "consolidated"}

    monkeypatch.setattr("swell.cli.up.answering", lambda _: Daemon())
    for options, note in (("--port 8123", "--port holds from"), ("--port 8123 --tls", "--port and --tls hold from")):
        done = CliRunner().invoke(swell, ["up", *options.split(), "--home", str(tmp_path)])
        assert done.exit_code == 0, done.output
        assert note in done.output


def test_logout_of_nobody_says_so(tmp_path: Path) -> None:
    assert "nothing to forget" in CliRunner().invoke(swell, ["logout", "--home", str(tmp_path)]).output
    (tmp_path / "login.json").write_text("{}")
    assert CliRunner().invoke(swell, ["logout", "--home", str(tmp_path)]).output.startswith("removed ")
    assert not (tmp_path / "login.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--interval", "-5"), "-5.0 is not in the range x>=0"),
        (("--interval", "inf"), "'inf' is not a number with an end"),
        (("--noise", "nan"), "'nan' is not a number with an end"),
        (("--stragglers", "7"), "7.0 is not in the range 0<=x<=1"),
        (("--failures", "-1"), "-1.0 is not in the range x>=0"),
        (("--processes", "-1"), "-1 is not in the range x>=0"),
        (("--restart-cost", "x"), "'x' is not a valid number"),
    ],
)
def test_a_simulation_that_would_never_end_or_mean_nothing_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    workload = tmp_path / "jobs.yaml"
    workload.write_text("- {at: 0, takes: 1m, command: 'true', gpus: 1}\n")
    given = ("sim", "run", "--workload", str(workload), "--out", str(tmp_path / "out"), *arguments)
    done = CliRunner().invoke(swell, given)
    assert done.exit_code == 2
    assert said in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [("--families", "0"), ("--elastic", "3"), ("--sigma", "-1"), ("--hours", "inf")])
def test_a_workload_that_cannot_be_is_not_generated(tmp_path: Path, arguments: tuple[str, str]) -> None:
    done = CliRunner().invoke(swell, ("sim", "generate", "--out", str(tmp_path / "jobs.yaml"), *arguments))
    assert done.exit_code == 2
    assert f"Invalid value for '{arguments[0]}'" in done.output
    assert not (tmp_path / "jobs.yaml").exists()


def test_a_simulation_says_how_many_jobs_its_times_leave_out(tmp_path: Path) -> None:
    workload = tmp_path / "jobs.yaml"
    workload.write_text("- {takes: 1m, command: 'true', gpus: 1}\n- {takes: 1m, command: 'true', gpus: 8}\n")
    options = ("--cluster", "1x2", "--policy", "fifo", "--out", str(tmp_path / "out"))
    done = CliRunner().invoke(swell, ("sim", "run", "--workload", str(workload), *options))
    assert done.exit_code == 0, done.output
    assert "note: jobs, fifo: times are without 1 job that never ended" in done.output


def test_results_that_are_not_there_are_answered_with_what_writes_them(tmp_path: Path) -> None:
    with pytest.raises(SwellError, match=r"has no summary\.json; `swell sim run --out .* writes it"):
        CliRunner().invoke(swell, ("sim", "compare", str(tmp_path)), catch_exceptions=False)


def test_a_whole_number_is_not_called_a_range() -> None:
    done = CliRunner().invoke(swell, ("port-forward", "1", "1-4"))
    assert "'1-4' is not a valid integer." in done.output


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("node", "shwo", "gpu1"), "there is no verb 'shwo' of `swell node`; did you mean show?"),
        (("sim", "foo"), "there is no verb 'foo' of `swell sim`; there are: run, generate, compare, report"),
        (("logs", "7", "--rank", "all"), "--rank all goes with -f; without it name one process, such as --rank 1"),
        (("stats", "--since", "2999-01-01"), "'2999-01-01' is still to come"),
        (("history", "--since", "2999-01-01T10:00"), "is still to come"),
    ],
)
def test_what_cannot_be_meant_is_answered_with_what_can(typed: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(swell, typed)
    assert done.exit_code == 2
    assert said in done.output


def test_until_may_be_still_to_come() -> None:
    assert Moment(past=False).convert("2999-01-01", None, None) > time.time()


def test_a_narrow_terminal_shows_fewer_figures_of_a_simulation_never_half_of_one() -> None:
    head = [*WHICH, *(title for _, title, _ in COLUMNS)]
    rows = [["workload-1", name, "fixed", "1.0", *("123456" for _ in COLUMNS)] for name in ("fifo", "elastic-srjf")]
    for room in (80, 100, 120):
        shown = fitting(head, rows, room)
        assert sum(max(len(row[i]) for row in (head, *rows)) + 2 for i in shown) <= room
        assert [head[i] for i in shown][:3] == ["workload", "policy", "mean s"]
    assert fitting(head, rows, 160) == list(range(len(head)))
    rows[1][3] = "2.0"
    assert "load" in [head[i] for i in fitting(head, rows, 80)]
