"""Past a shim that does not answer: whose processes are killed, and whether the shim is."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swell.shim import ask
from swell.shim.members import Members

CLAIM: dict[str, Any] = {"pid": 4242, "start": 7, "boot": "this", "mark": "ab" * 16}


class Scene:
    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run = directory / "1.1"
        self.killed: list[tuple[str, str, tuple[int, ...]]] = []
        self.sent: list[tuple[int, int, int]] = []
        self.goes, self.state = True, "S"
        monkeypatch.setattr(ask, "boot_id", lambda: "this")
        monkeypatch.setattr(ask, "stat_of", lambda _: SimpleNamespace(start=7, alive=True, state=self.state))
        monkeypatch.setattr(ask, "send", lambda *signal_: self.sent.append(signal_))

        def sweep(members: Members, _: float, *roots: int) -> bool:
            self.killed.append((members.mark, members.cgroup, roots))
            return self.goes

        monkeypatch.setattr(Members, "sweep", sweep)

    def claim(self, rank: int, **changed: object) -> Path:
        directory = self.run / str(rank)
        directory.mkdir(parents=True)
        (directory / "claim").write_text(json.dumps({**CLAIM, **changed}))
        return directory

    def force(self, *ranks: int) -> None:
        ask.force(str(self.run), list(ranks))


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path, monkeypatch)


def test_the_members_of_each_worker_that_was_named_are_killed_and_of_no_other(scene: Scene) -> None:
    for rank in range(3):
        scene.claim(rank, mark=f"mark {rank}", cgroup=f"group {rank}")
    scene.force(0, 2)
    assert [found[:2] for found in scene.killed] == [("mark 0", "group 0"), ("mark 2", "group 2")]


def test_its_helpers_are_asked_about_and_not_counted(scene: Scene) -> None:
    (scene.claim(0) / "lock").write_text(json.dumps({**CLAIM, "pid": 4241}))
    scene.force(0)
    assert [set(roots) for *_, roots in scene.killed] == [{4241, 4242}]


def test_a_worker_that_is_swept_already_is_left_alone(scene: Scene) -> None:
    (scene.claim(0) / "swept").touch()
    scene.force(0)
    assert not scene.killed


def test_what_was_claimed_before_a_boot_or_by_nobody_is_left_alone(scene: Scene) -> None:
    scene.claim(0, boot="another")
    (scene.run / "1").mkdir()
    scene.force(0, 1)
    assert not scene.killed


@pytest.mark.parametrize("state", ["T", "t"])
def test_a_shim_that_is_stopped_is_killed_once_nothing_is_left_of_its_worker(scene: Scene, state: str) -> None:
    scene.claim(0)
    scene.state, scene.goes = state, False
    scene.force(0)
    assert not scene.sent, "it has something to hold yet"
    scene.goes = True
    scene.force(0)
    assert scene.sent == [(4242, 7, signal.SIGKILL)]


@pytest.mark.parametrize("state", ["S", "D", "R"])
def test_a_shim_that_runs_writes_its_own_record(scene: Scene, state: str) -> None:
    scene.claim(0)
    scene.state = state
    scene.force(0)
    assert scene.killed
    assert not scene.sent
