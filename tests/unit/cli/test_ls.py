"""Which jobs `ls` shows, in which order, and how."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from swell.cli import ls as module
from swell.cli.elsewhere import ALSO
from swell.cli.main import VERBS, swell


def job(number: int, state: str, name: str = "train", **more: Any) -> dict[str, Any]:
    return {
        "id": number,
        "name": name,
        "user": "ada",
        "state": state,
        "paused": False,
        "priority": 0,
        "gpus": {"held": 0, "min": 1, "max": 1, "share": False},
        "progress": {"unit": "epoch", "epochs_done": 0, "epochs_total": 0},
        "eta_s": None,
        "starts_s": None,
        "submitted_s": 0.0,
        "where": [],
        "why": "",
        "ended_s": None,
        "waited_s": 0.0,
        "ran_s": 0.0,
        **more,
    }


JOBS = [
    job(1, "completed", ended_s=1.0),
    job(2, "failed", "eval", ended_s=1.0, ran_s=9.0),
    job(3, "running", "train-x", priority=10),
    job(4, "queued", paused=True),
    job(5, "queued", waited_s=5.0),
]
GROUPS = {"ended": ("completed", "failed"), "running": ("running",), "queued": ("queued",)}


class Client:
    def jobs(self, *, state: str, **_: object) -> tuple[list[dict[str, Any]], None]:
        return [view for view in reversed(JOBS) if state == "all" or view["state"] in GROUPS[state]], None


@pytest.fixture(autouse=True)
def daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "client", lambda *_: Client())


def listed(*arguments: str, colour: bool = False) -> str:
    done = CliRunner().invoke(module.ls, arguments, color=colour)
    assert done.exit_code == 0, done.output
    return done.output


def ids(*arguments: str) -> list[int]:
    return [int(line.split()[0]) for line in listed(*arguments).splitlines()[1:]]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), [1, 2, 3, 4, 5]),
        (("--state", "failed"), [2]),
        (("--state", "paused"), [4]),
        (("--state", "queued"), [5]),
        (("--state", "failed", "--state", "running"), [2, 3]),
        (("--name", "train-*"), [3]),
        (("--name", "train", "-n", "2"), [4, 5]),
        (("--queued", "--name", "train"), [4, 5]),
        (("--sort", "priority"), [3, 1, 2, 4, 5]),
        (("--sort", "waited"), [5, 1, 2, 3, 4]),
        (("--sort", "ran"), [2, 1, 3, 4, 5]),
        (("--sort", "name"), [2, 1, 4, 5, 3]),
    ],
)
def test_filters_and_orders(arguments: tuple[str, ...], expected: list[int]) -> None:
    assert ids(*arguments) == expected


def test_states_have_colours_unless_somebody_wants_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[31m2 " in listed(colour=True), "failed is red"
    assert "\x1b[32m3 " in listed(colour=True), "running is green"
    assert "\x1b" not in listed(), "not in a pipe"
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in listed(colour=True)


def test_verbs_that_people_type_lead_to_ours() -> None:
    assert set(ALSO.values()) <= set(VERBS)
    assert not set(ALSO) & set(VERBS)
    for typed, ours in ALSO.items():
        assert CliRunner().invoke(swell, [typed, "--help"]).output.startswith(f"Usage: swell {ours} ")
    assert CliRunner().invoke(swell, ["help", "ls"]).output.startswith("Usage: swell ls ")
    assert "Verbs:" in CliRunner().invoke(swell, ["help"]).output
    assert "there is no verb 'lss'" in CliRunner().invoke(swell, ["lss"]).output


def test_ctrl_c_ends_any_verb_with_130_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "client", interrupted)
    done = CliRunner().invoke(swell, ["ls"])
    assert done.exit_code == 130
    assert "Traceback" not in done.output
