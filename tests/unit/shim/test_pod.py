"""How long a worker in a pod waits for the addresses of the other pods of its run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from swell.shim import pod
from swell.shim.pod import CannotStart, Worker, addresses


class Waited(Exception):
    """Longer than it should have."""


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []

    def pause(for_s: float) -> None:
        found.append(for_s)
        if len(found) > 3:
            raise Waited

    monkeypatch.setattr(time, "sleep", pause)
    return found


def test_addresses_are_taken_as_soon_as_they_are_there(tmp_path: Path) -> None:
    (tmp_path / "addresses").write_text("10.0.0.1 10.0.0.2\n")
    assert addresses(str(tmp_path / "addresses"), Worker()) == ["10.0.0.1", "10.0.0.2"]


def test_a_pod_waits_for_them_no_longer_than_it_may(
    tmp_path: Path, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Waited):
        addresses(str(tmp_path / "none"), Worker())
    pauses.clear()
    monkeypatch.setattr(pod, "ADDRESSES_S", 0.0)
    with pytest.raises(CannotStart, match="did not get an address in time"):
        addresses(str(tmp_path / "none"), Worker())


def test_a_pod_that_was_asked_to_stop_waits_no_more(tmp_path: Path, pauses: list[float]) -> None:
    worker = Worker()
    worker.asked = "term"
    with pytest.raises(CannotStart):
        addresses(str(tmp_path / "none"), worker)
    assert not pauses
