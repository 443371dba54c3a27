"""What verbs make of their arguments, without a daemon."""

import io
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import click
import pytest
from click.testing import CliRunner

from swell.cli.cancel import spread
from swell.cli.common import table
from swell.cli.events import line
from swell.cli.follow import Lines
from swell.cli.main import VERBS, swell
from swell.cli.policy import _option
from swell.cli.run import job_document
from swell.cli.show import command_line
from swell.cli.terminal import LogWriter
from swell.client.http import parse_messages
from swell.jobfile.batchfile import RUN_LINE

NOTHING: dict[str, Any] = {
    "gpus": "1",
    "gpu_types": (),
    "gpu_memory": None,
    "share": False,
    "env": (),
    "secrets": (),
    "name": None,
    "priority": None,
}


def document(*command: str, **said: Any) -> dict[str, Any]:
    return job_document({**NOTHING, **said, "command": command})


def test_what_was_not_said_is_left_out() -> None:
    assert document("python", "x.py") == {"command": ["python", "x.py"], "gpus": "1", "env": {}}


def test_one_argument_is_a_shell_line() -> None:
    assert document("a && b")["command"] == "a && b"


def test_options_become_fields() -> None:
    made = document("x", gpus="1-4", gpu_memory="6GiB", gpu_types=("A100",), env=("A=1", "B=x=y"), secrets=("T",))
    assert made["gpus"] == {"min": 1, "max": 4, "types": ["A100"], "share": False, "memory": "6GiB"}
    assert made["env"] == {"A": "1", "B": "x=y"}
    assert made["secrets"] == ["T"]


def test_env_without_a_value_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="NAME=VALUE"):
        document("x", env=("A",))


@pytest.mark.parametrize(("text", "jobs"), [("5-7", [5, 6, 7]), ("5", ["5"]), ("train-5", ["train-5"])])
def test_ranges(text: str, jobs: list[int | str]) -> None:
    assert spread(text) == jobs


@pytest.mark.parametrize("text", ["7-5", "1-99999"])
def test_ranges_that_are_none(text: str) -> None:
    with pytest.raises(click.BadParameter):
        spread(text)


def test_policy_options_have_types() -> None:
    assert [_option(t) for t in ("a=1", "b=0.5", "c=true", "d=x")] == [("a", 1), ("b", 0.5), ("c", True), ("d", "x")]


def test_commands_are_shown_as_written() -> None:
    assert command_line(["/bin/sh", "-c", "a | b"]) == "a | b"
    assert command_line(["bash", "-c", RUN_LINE, "b.sh.1", "a | b"]) == "a | b"
    assert command_line(["python", "a b.py"]) == "python 'a b.py'"


def test_events_are_lines_for_people() -> None:
    text = line(
        {"seq": 4, "type": "RunPlanned", "run": "7.2", "job": 7, "at_s": 0.0, "reason": "2 GPUs", "allocation": {}}
    )
    assert "run 7.2" in text
    assert "run planned" in text
    assert "reason=2 GPUs" in text


def test_tables_are_aligned() -> None:
    assert table(("A", "B"), [("long", "x"), ("y", "")]) == "A     B\nlong  x\ny"


def test_never_what_a_terminal_would_obey() -> None:
    shown = table(("A",), [("\x1b[2Jgone\nand more",)])
    assert shown == "A\n?[2Jgone and more"


def test_lines_of_several_processes_are_tagged_and_whole() -> None:
    out = io.StringIO()
    lines = Lines(LogWriter(out))
    for rank, text in ((0, "a"), (1, "b\nc"), (0, "a\n"), (1, "d")):
        lines.write({"rank": rank, "text": text})
    lines.end()
    assert out.getvalue() == "[1] b\n[0] aa\n[1] cd\n"


def test_messages_of_a_stream() -> None:
    lines = [b": hi\n", b"\n", b"id: 1:5\n", b"event: log\n", b'data: {"text": "a"}\n', b"\n", b"data: {}\n", b"\n"]
    found = list(parse_messages(lines))
    assert [(m.id, m.event, m.data) for m in found] == [("1:5", "log", {"text": "a"}), ("", "message", {})]


@pytest.mark.parametrize("verb", [verb for verb, (module, _) in VERBS.items() if find_spec(module)])
def test_every_verb_has_help_and_json(verb: str) -> None:
    result = CliRunner().invoke(swell, [verb, "--help"])
    assert result.exit_code == 0, result.output
    if verb not in ("serve", "node", "batch", "demo", "sim", "user", "token", "exec"):
        assert "--json" in result.output


def test_a_wrong_verb_is_answered_with_the_right_one() -> None:
    result = CliRunner().invoke(swell, ["lgos"])
    assert result.exit_code == 2
    assert "did you mean logs?" in result.output


HEAVY = (
    "pydantic",
    "fastapi",
    "starlette",
    "uvicorn",
    "numpy",
    "scipy",
    "rich",
    "yaml",
    "msgspec",
    "swell.daemon",
    "swell.plan",
)


@pytest.mark.parametrize("verb", ["ls", "cancel", "logs", "run", "submit", "top"])
def test_never_the_server_on_the_fast_path(verb: str) -> None:
    code = f"import sys, swell.cli.main, swell.cli.{verb}; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in HEAVY if name in found] == []


def test_up_into_a_cluster_without_an_image_says_how_to_make_one() -> None:
    done = CliRunner().invoke(swell, ["up", "--kubernetes"])
    assert done.exit_code == 2
    for way in ("--image registry.example/swell:1", "deploy/Dockerfile", "--kubernetes-context NAME"):
        assert way in " ".join(done.output.split())
