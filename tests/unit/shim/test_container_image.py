"""An image that is not there is fetched, which people see while it lasts; and how the container ended is noted."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest

from swell.shim import containers
from swell.shim.containers import Held, outcome, preparing

RECORD: dict[str, Any] = {"code": 0, "signal": None, "oom": False, "asked": "", "failed": {}}


def held(directory: Path) -> Held:
    container = {"image": "train:1", "name": "c", "pull_timeout_s": 1.0}
    return Held({"container": container, "argv": ["true"], "env": {}, "run": "1.1"}, str(directory), "mark", -1)


def test_while_an_image_is_fetched_the_worker_is_preparing_and_not_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def pull(_: Held) -> str:
        (tmp_path / "pull").write_text("Copying blob 1 of 3\n")
        seen.append(preparing(str(tmp_path)))
        return ""

    monkeypatch.setattr(Held, "_image", lambda _: None)
    monkeypatch.setattr(Held, "_pull", pull)
    held(tmp_path)._have_image()
    assert seen == ["Copying blob 1 of 3"]
    assert preparing(str(tmp_path)) == ""


def test_one_run_per_node_fetches_an_image(tmp_path: Path) -> None:
    directory = tmp_path / "runs" / "7.1" / "0"
    directory.mkdir(parents=True)
    with containers._pull_lock(str(directory), "train:1"):
        (lock,) = (tmp_path / "runs").glob(".pull-*")
        with lock.open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with lock.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("code", [0, 3])
def test_an_end_that_the_runtime_tells_is_not_lost(tmp_path: Path, code: int) -> None:
    assert held(tmp_path)._tell({"Status": "exited", "ExitCode": code}) == code
    assert outcome(str(tmp_path), RECORD)["code"] == code
    assert not json.loads((tmp_path / "container.json").read_text())["lost"]


def test_a_runtime_that_cannot_be_started_answers_nothing(tmp_path: Path) -> None:
    code, said = containers.call([str(tmp_path / "none")], {})
    assert code == -1
    assert "No such file" in said
