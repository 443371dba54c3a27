"""A fence is made by the daemon itself: whoever else stops the same worker at that moment never signals the daemon."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from swell.shim import ask, files


def test_never_signals_itself_while_another_thread_fences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "7.1" / "0"
    directory.mkdir(parents=True)
    lock = files.take_lock(str(directory))
    assert lock is not None
    assert files.claim(str(directory), "")  # as far as a fence is when the other thread looks
    sent: list[int] = []

    def send(pid: int, *_: object) -> bool:
        sent.append(pid)
        return True

    monkeypatch.setattr(ask, "send", send)
    monkeypatch.setattr(time, "sleep", lambda _: os.close(lock) if not sent and _is_open(lock) else None)
    ask.stop_worker(str(directory), kill=True)
    assert sent == []


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
