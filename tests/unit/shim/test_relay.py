"""A process of the run's own passes ports on, if there are any to be passed on."""

from __future__ import annotations

import os

import pytest

from swell.shim.relay import Relay


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Each fork as its parent sees it."""
    found: list[int] = []

    def fork() -> int:
        found.append(4242)
        return 4242

    monkeypatch.setattr(os, "fork", fork)
    return found


def test_ports_that_lead_elsewhere_have_a_process_and_are_its_alone(forks: list[int]) -> None:
    relay = Relay({"0": "8080"})  # any free port
    relay.start(-1)
    assert len(forks) == 1
    assert [listener.fileno() for listener, _ in relay._listeners] == [-1], "closed here"


def test_the_same_port_inside_and_outside_needs_none(forks: list[int]) -> None:
    Relay({"8080": "8080"}).start(-1)
    assert not forks
