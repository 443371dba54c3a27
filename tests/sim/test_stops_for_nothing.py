"""No run is stopped to be resized or moved and then given what it had: public workloads, elastic policies."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.core.events import Event, RunStopRequested, StopWhy
from swell.core.invariants import stops_for_nothing
from swell.core.state import State
from swell.sim.engine import Simulation
from swell.sim.simulate import Case, scenes, setup_of


def history(data: Path, number: int, policy: str, *, adaptive: bool, clairvoyant: bool) -> list[Event]:
    case = Case(
        workload=data / "pollux" / "workloads" / f"workload-{number}.csv",
        profiles=data / "pollux" / "profiles",
        cluster="16x4",
        policy=policy,
        adaptive=adaptive,
        clairvoyant=clairvoyant,
    )
    (scene,) = scenes(case)
    events: list[Event] = []

    def watch(_state: State, event: Event) -> None:
        events.append(event)

    Simulation(setup_of(case, scene.nodes), scene.world, scene.book, (watch,)).run(scene.workload)
    return events


SHORT = [(4, "swell", False, True)]  # 27 of 342 restarts were for nothing before plans were kept to
LONG = [
    (number, policy, adaptive, clairvoyant)
    for number in (1, 2, 3, 4)
    for policy in ("swell", "elastic-fifo", "afs-l")
    for adaptive in (False, True)
    for clairvoyant in (False, True)
]


@pytest.mark.parametrize(
    ("number", "policy", "adaptive", "clairvoyant"),
    SHORT + [pytest.param(*one, marks=pytest.mark.slow) for one in LONG],
)
def test_no_restart_is_for_nothing(data: Path, number: int, policy: str, adaptive: bool, clairvoyant: bool) -> None:
    events = history(data, number, policy, adaptive=adaptive, clairvoyant=clairvoyant)
    resized = [e for e in events if isinstance(e, RunStopRequested) and e.why is StopWhy.RESIZING]
    assert len(resized) > 50
    assert stops_for_nothing(events) == []
