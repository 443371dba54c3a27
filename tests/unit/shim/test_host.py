"""What a machine is asked to do about the workers of a run, where no process has to be there for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.shim import ask
from swell.shim.host import Host


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    found: list[tuple[str, bool]] = []
    monkeypatch.setattr(ask, "stop_worker", lambda directory, *, kill: found.append((directory, kill)))
    return found


@pytest.mark.parametrize("kill", [False, True])
def test_of_a_run_that_goes_on_only_the_named_workers_are_stopped(
    tmp_path: Path, asked: list[tuple[str, bool]], kill: bool
) -> None:
    host = Host(str(tmp_path / "runs"))
    (tmp_path / "runs" / "7.1").mkdir()
    host.stop("7.1", [1, 3], kill=kill, whole=False)
    assert asked == [(str(tmp_path / f"runs/7.1/{rank}"), kill) for rank in (1, 3)]
    assert not (tmp_path / "runs" / "7.1" / "stop").exists(), "the run itself is not stopped"
    host.stop("7.1", [0], kill=kill, whole=True)
    assert (tmp_path / "runs" / "7.1" / "stop").exists()
