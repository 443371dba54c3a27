"""How a container is asked to end, and how long after a change it is noticed."""

from __future__ import annotations

import io
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from swell.shim import container_argv, containers
from swell.shim.containers import SETTLE_S, Held, terminate
from swell.shim.files import Json
from unit.shim.test_container_image import held

TERM, OTHERS = 1 << (signal.SIGTERM - 1), 1 << signal.SIGTERM | 1 << (signal.SIGTERM - 2)
NOTICED_S = 1.0
KILLED = -signal.SIGKILL
Story = Callable[[float], Json]


class Scene:
    """A container whose story goes by the seconds that pass, of which only pauses take any."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.alive, self.story = 0.0, True, cast(Story, lambda _: {})
        self.held = held(directory)
        monkeypatch.setattr(containers, "time", SimpleNamespace(sleep=self.sleep))
        monkeypatch.setattr(containers, "boot_s", lambda: self.now_s)
        monkeypatch.setattr(containers, "_is_alive", lambda _: self.alive)
        monkeypatch.setattr(Held, "state", lambda _: self.story(self.now_s))

    def sleep(self, for_s: float) -> None:
        self.now_s += for_s

    def end(self, program: str = "/usr/bin/podman") -> Json:
        self.held.program = program
        return self.held._end(KILLED)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path, monkeypatch)


def status(of: str, **more: object) -> Json:
    return {"Status": of, **more}


@pytest.mark.parametrize(("program", "alive"), [("/usr/bin/podman", True), ("/usr/bin/docker", False)])
def test_the_end_of_a_container_whose_client_was_killed_is_noticed_soon(
    scene: Scene, program: str, *, alive: bool
) -> None:
    scene.alive = alive  # docker's first process is not known here: its word alone counts
    scene.story = lambda now_s: status("exited", ExitCode=3) if now_s >= 40.0 else status("running")
    assert scene.end(program) == status("exited", ExitCode=3)
    assert 40.0 <= scene.now_s < 40.0 + NOTICED_S


@pytest.mark.parametrize("last", [{}, status("running")], ids=["unknown", "no process"])
def test_a_runtime_has_some_time_to_notice_an_end_and_is_not_waited_for_any_longer(scene: Scene, last: Json) -> None:
    scene.alive = False
    scene.story = lambda _: last
    assert scene.end() == last
    assert SETTLE_S < scene.now_s < SETTLE_S + NOTICED_S


def test_that_time_begins_anew_when_the_container_runs_after_all(scene: Scene) -> None:
    scene.story = lambda now_s: status("running") if 3.0 <= now_s < 4.0 else {}
    assert scene.end() == {}
    assert 4.0 + SETTLE_S < scene.now_s < 4.0 + SETTLE_S + 2 * NOTICED_S


@pytest.mark.parametrize("program", ["/usr/bin/podman", "/usr/bin/docker"])
def test_a_start_is_noticed_soon(scene: Scene, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    class Client:
        def poll(self) -> None: ...

    scene.held.program = program
    scene.story = lambda now_s: {"StartedAt": "2026-11-19" if now_s >= 2.0 else "0001-01-01"}
    monkeypatch.setattr(Held, "_pid", lambda _: 4242 if scene.now_s >= 2.0 else 0)
    scene.held._until_up(cast("subprocess.Popen[bytes]", Client()))
    assert 2.0 <= scene.now_s < 2.0 + NOTICED_S


def test_what_the_client_told_is_not_asked_for(scene: Scene) -> None:
    scene.held.program = "/usr/bin/podman"
    assert container_argv.tells_the_end(scene.held.program, 3)
    assert scene.held._end(3) == status("exited", ExitCode=3)


@pytest.mark.parametrize(
    ("facts", "deaf"),
    [
        ({"NSpid": "4242\t1", "SigCgt": OTHERS, "SigIgn": OTHERS}, True),
        ({"NSpid": "4242\t1", "SigCgt": 0, "SigIgn": 0}, True),
        ({"NSpid": "4242\t1", "SigCgt": TERM, "SigIgn": 0}, False),
        ({"NSpid": "4242\t1", "SigCgt": 0, "SigIgn": TERM}, False),
        ({"NSpid": "4242\t7", "SigCgt": 0, "SigIgn": 0}, False),
        ({"NSpid": "1\t7", "SigCgt": 0, "SigIgn": 0}, False),
        ({"SigCgt": 0, "SigIgn": 0}, False),
        ({"NSpid": "4242\t1", "SigIgn": 0}, False),
    ],
)
def test_only_a_first_process_that_would_not_hear_it_gets_another_signal_than_sigterm(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, str | int], *, deaf: bool
) -> None:
    text = "".join(f"{name}:\t{fact if isinstance(fact, str) else f'{fact:016x}'}\n" for name, fact in facts.items())
    sent: list[tuple[int, int, int]] = []
    monkeypatch.setattr(containers, "_namespace", lambda pid: "inside" if pid == 4242 else "here")
    monkeypatch.setattr(containers, "open", lambda *_, **__: io.StringIO(text), raising=False)
    monkeypatch.setattr(containers, "send", lambda *signal_: sent.append(signal_))
    assert terminate({4241: 10, 4242: 11})
    assert sent == [(4242, 11, signal.SIGKILL if deaf else signal.SIGTERM)]


def test_while_nothing_runs_inside_nothing_is_signalled(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[object] = []
    monkeypatch.setattr(containers, "send", lambda *signal_: sent.append(signal_))
    monkeypatch.setattr(containers, "_namespace", lambda pid: "" if pid == 4242 else "here")
    assert not terminate({4241: 10, 4242: 11})
    assert not sent
