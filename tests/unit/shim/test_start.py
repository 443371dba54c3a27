"""How a shim begins: with nothing of whoever started it."""

from __future__ import annotations

import os

import pytest

from swell.shim import shim


def test_a_shim_reads_and_writes_nothing_of_whoever_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    led: list[tuple[str, int]] = []
    held: list[tuple[str, int]] = []
    monkeypatch.setattr(os, "umask", lambda _: 0o027)
    monkeypatch.setattr(os, "chdir", lambda _: None)
    monkeypatch.setattr(os, "dup2", lambda fd, to: led.append((os.readlink(f"/proc/self/fd/{fd}"), to)))
    monkeypatch.setattr(shim, "detach", lambda directory, umask: held.append((directory, umask)))
    assert shim.main(["shim", "hold", "/runs/7.1/0"]) == 0
    assert led == [("/dev/null", fd) for fd in (0, 1, 2)]
    assert held == [("/runs/7.1/0", 0o027)]
