"""What anybody may have written is shown, and never obeyed by the terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from swell.cli import events, explain, history, ls, show, top
from swell.cli import terminal as module
from swell.cli.main import guarded
from swell.cli.terminal import LogWriter, safe, say, visible
from swell.core.errors import SwellError

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\x7f\rgone"
ORDERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")


def test_nothing_but_lines_is_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"one {EVIL}\ntwo", err=True)
    said = capsys.readouterr().err
    assert said.count("\n") == 2
    assert not ORDERS.search(said)
    assert "owned" in said


def test_what_people_write_in_their_languages_stays() -> None:
    for text in ("naïve", "学習", "обучение", "a b", "→ …"):
        assert visible(text) == safe(text) == text
    assert safe("a\n\tb") == "a b"


def test_there_is_no_other_way_to_the_terminal() -> None:
    folder = Path(module.__file__).parent
    others = [path.name for path in folder.glob("*.py") if path.name != "terminal.py"]
    for name in others:
        text = (folder / name).read_text()
        assert not re.search(r"click\.(echo|secho)\(|^\s*print\(|sys\.stdout\.(write|buffer)", text, re.MULTILINE), name


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        ("\x1b[31mred\x1b[0m\n", "\x1b[31mred\x1b[0m\n"),
        (" 50%|###  |\r100%|#####|\n\x1b[A\x1b[K", " 50%|###  |\r100%|#####|\n\x1b[A\x1b[K"),
        ("a\x1b]0;title\x07b\x1b]52;c;Y2xpcA==\x1b\\c", "abc"),
        ("a\x1b[2Jb\x1b[6nc\x1b[?1049hd\x1b[21te", "abcde"),
        ("a\x1bPq#0\x1b\\b\x1bcc\x9b2Jd\x07", "abc2Jd"),
        ("学習\t1\b", "学習\t1\b"),
    ],
)
@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_a_log_on_a_terminal_has_colours_and_no_orders(log: str, shown: str, piece: int) -> None:
    out = Terminal()
    writer = LogWriter(out)
    data = log.encode()
    for start in range(0, len(data), piece):
        writer.write_bytes(data[start : start + piece])
    assert out.getvalue() == shown


def test_a_log_into_a_file_is_as_it_is() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="utf-8")
    LogWriter(out).write_bytes(b"\xff" + EVIL.encode())
    assert raw.getvalue() == b"\xff" + EVIL.encode()


# -- verbs ------------------------------------------------------------------------------------------------------------

JOB: dict[str, Any] = {
    "id": 1,
    "name": EVIL,
    "user": EVIL,
    "team": EVIL,
    "state": "queued",
    "paused": False,
    "why": EVIL,
    "gpus": {"held": 0, "min": 1, "max": 1, "share": None},
    "progress": {"unit": "epoch", "epochs_done": 0, "epochs_total": 0},
    "where": [EVIL],
    "eta_s": None,
    "starts_s": None,
    "restart_cost_s": None,
    "ended_s": None,
    "submitted_s": 0.0,
    "waited_s": 1.0,
    "ran_s": 1.0,
    "priority": 0,
    "lost_s": 0.0,
    "attempts": 0,
    "failures": 0,
    "kills": 0,
    "preemptions": 0,
    "resizes": 0,
    "migrations": 0,
    "files": EVIL,
    "message": EVIL,
    "metrics": {EVIL: 1.0},
    "spec": {
        "command": [EVIL],
        "workdir": EVIL,
        "env": {"A": EVIL},
        "shell_env": {"PATH": EVIL},
        "python": EVIL,
        "outputs": [EVIL],
        "outputs_to": EVIL,
    },
    "outputs": {"into": EVIL, "files": 1, "problem": EVIL},
    "files_on": EVIL,
    "copy": {"epoch": 1, "at_s": 1.0, "bytes": 1, "problem": EVIL, "shared_by": [EVIL]},
    "rewound": EVIL,
    "gpu_s": 1.0,
    "restarts_s": None,
    "exit_code": None,
    "exit_reason": EVIL,
    "started_s": None,
    "batch": "",
}
RUN = {
    "id": "1.1",
    "gpus": 1,
    "where": [EVIL],
    "started_s": 1.0,
    "lost_s": 0.0,
    "ended_s": 2.0,
    "exit_reason": EVIL,
    "stop": None,
    "exit_code": 1,
    "message": EVIL,
    "reason": EVIL,
}
NODE = {
    "name": EVIL,
    "gpus": [],
    "gpus_free": 0,
    "gpus_total": 0,
    "cpus": 1,
    "cpus_held": 0,
    "memory_mib": 1,
    "memory_held_mib": 0,
}
SPEED: dict[str, Any] = {"curves": {}, "points": [], "source": EVIL, "reference_type": EVIL}
SNAPSHOT = {"files": 1, "bytes": 1, "own_bytes": 1}
KEPT = {
    "job": 1,
    "directory": EVIL,
    "snapshot": SNAPSHOT,
    "submitted": "",
    **{key: {"bytes": 1} for key in ("working_copy", "logs")},
    "checkpoints": {"path": EVIL, "files": 1, "bytes": 1},
}
EXPLAINED = {
    "job": 1,
    "summary": EVIL,
    "sentences": [EVIL + "!"],
    "starts": EVIL,
    "advice": EVIL,
    "ahead_count": 1,
    "trouble": EVIL,
    "missing": EVIL,
    "ahead": [{"job": 2, "name": EVIL, "user": EVIL, "state": EVIL, "gpus": 1, "priority": 0}],
}
EVENT = {"seq": 1, "type": "JobCancelled", "at_s": 0.0, "job": 1, "by": EVIL, "reason": EVIL}


class Client:
    """Answers as a daemon that was told evil things."""

    def get(self, path: str, **_: object) -> Any:
        answers = {"/explain": EXPLAINED, "/runs": {"runs": [RUN]}, "/nodes": {"nodes": [NODE]}, "/files": KEPT}
        answers |= {"/speed": SPEED, "/series": {"series": {EVIL: [(0.0, 1.0), (1.0, 2.0)]}}}
        return next((answer for end, answer in answers.items() if path.endswith(end)), {"policy": EVIL, "jobs": {}})

    def job(self, ref: object) -> Any:
        return dict(JOB)

    def jobs(self, **_: object) -> Any:
        return [JOB], None

    def stream(self, *_: object, **__: object) -> Any:
        return iter([type("Message", (), {"data": EVENT})()])


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        (explain.explain, ["1"]),
        (events.events, []),
        (show.show, ["1"]),
        (ls.ls, []),
        (top.top, ["--once"]),
        (events.events, ["--json"]),
        (show.show, ["1", "--json"]),
        (history.history, []),
        (history.history, ["--by", "team"]),
        (history.history, ["--csv"]),
    ],
)
def test_no_verb_lets_orders_through(
    monkeypatch: pytest.MonkeyPatch, verb: click.Command, arguments: list[str]
) -> None:
    for used in (explain, events, show, ls, top, history):
        monkeypatch.setattr(used, "client", lambda *_: Client(), raising=False)
    done: Result = CliRunner().invoke(verb, arguments)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert "gone" in done.output
    assert not ORDERS.search(done.output)


def test_errors_neither(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        raise SwellError(f"no job {EVIL}")

    with pytest.raises(SystemExit):
        guarded(fails)
    assert not ORDERS.search(capsys.readouterr().err)
