"""What a guard does once the shim it watches has ended."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from swell.shim import shim
from swell.shim.members import Members

SHIM = 4242
REQUEST = {"run": "7.1", "rank": 0}


@pytest.fixture(autouse=True)
def of_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shim has ended, and left nothing; this process stays what it is."""
    monkeypatch.setattr(shim, "become", lambda _: None)
    monkeypatch.setattr(signal, "pthread_sigmask", lambda *_: set())
    monkeypatch.setattr(os, "waitpid", lambda *_: (SHIM, 9))
    monkeypatch.setattr(Members, "sweep", lambda *_: True)


def heard_after(directory: Path, claimed_by: int) -> list[str]:
    (directory / "claim").write_text(json.dumps({"pid": claimed_by, "mark": "ab" * 16, "cgroup": ""}))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(str(directory / "hints"))
        daemon.setblocking(False)
        shim.guard(str(directory), {**REQUEST, "notify": str(directory / "hints")}, SHIM)
        try:
            return [daemon.recv(100).decode()]
        except BlockingIOError:
            return []


def test_a_guard_that_has_swept_for_a_killed_shim_notifies_the_daemon(tmp_path: Path) -> None:
    assert heard_after(tmp_path, SHIM) == ["7.1/0"]
    assert (tmp_path / "swept").exists()


def test_a_guard_leaves_alone_what_was_swept_or_is_another_shims(tmp_path: Path) -> None:
    assert heard_after(tmp_path, SHIM + 1) == []
    assert not (tmp_path / "swept").exists()
    (tmp_path / "hints").unlink()
    (tmp_path / "swept").touch()
    assert heard_after(tmp_path, SHIM) == []
