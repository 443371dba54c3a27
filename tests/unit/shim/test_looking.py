"""What a look at a worker's directory finds, and does about a worker that nobody holds any more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from swell.shim import ask

CLAIM = {"pid": 4242, "start": 1, "boot": "another", "mark": "ab" * 16, "cgroup": ""}


def test_what_a_dead_shim_left_is_swept_once_and_the_worker_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[str] = []

    def sweep(directory: str, _: object) -> bool:
        swept.append(directory)
        return True

    monkeypatch.setattr(ask, "_sweep", sweep)
    (tmp_path / "claim").write_text(json.dumps(CLAIM))
    assert [ask._look(str(tmp_path), 0)["stage"] for _ in range(2)] == ["lost", "lost"]
    assert swept == [str(tmp_path)]


def test_a_worker_whose_processes_do_not_die_is_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "_sweep", lambda *_: False)
    (tmp_path / "claim").write_text(json.dumps(CLAIM))
    assert [ask._look(str(tmp_path), 0)["stage"] for _ in range(2)] == ["ending", "ending"]
