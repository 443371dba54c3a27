"""When a machine is away and when it is lost: by the daemon's own monotonic clock, counted from its last renewal."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from swell.core.events import Event
from swell.core.ids import RunId
from swell.core.lifecycle import replay
from swell.core.observations import NodeHeard
from swell.core.resources import Contact
from swell.core.state import State
from swell.daemon.contacts import Contacts
from unit.core.test_contact import RUN, world


class FakeClock:
    def __init__(self) -> None:
        self.s = 1000.0
        self.jump_s = 0.0

    def now_s(self) -> float:
        return self.s + self.jump_s

    def monotonic_s(self) -> float:
        return self.s


class Scene:
    def __init__(self) -> None:
        self.state: State = world("a")
        self.clock = FakeClock()
        self.killed: list[RunId] = []
        self.reached: list[str] = []
        self.contacts = Contacts(lambda: self.state, self.commit, self.killed.append, self.reached.append, self.clock)

    async def commit(self, events: Sequence[Event]) -> None:
        replay(events, self.state)

    def looked(self, at_s: float) -> Contact:
        self.clock.s = at_s
        asyncio.run(self.contacts.look())
        return self.state.nodes["a"].contact

    def heard(self, at_s: float, *running: RunId, renewed: bool = True, boot_id: str = "a1") -> Contact:
        self.clock.s = at_s
        seen = NodeHeard(node="a", boot_id=boot_id, running=running, at_s=at_s, renewed=renewed)
        asyncio.run(self.contacts.heard(seen))
        return self.state.nodes["a"].contact


def test_away_after_15_s_and_lost_only_when_the_leases_are_over() -> None:
    scene = Scene()
    assert scene.heard(1000.0, RUN) is Contact.HERE
    assert scene.looked(1014.9) is Contact.HERE
    assert scene.looked(1015.0) is Contact.AWAY
    over_s = 1000.0 + 1.01 * 60.0 + 30.0 + 10.0
    assert scene.looked(over_s - 0.1) is Contact.AWAY
    assert scene.looked(over_s) is Contact.LOST


def test_a_look_that_was_not_answered_with_a_renewal_does_not_move_the_bound() -> None:
    scene = Scene()
    scene.heard(1000.0, RUN)
    scene.heard(1010.0, RUN, renewed=False)
    assert scene.looked(1025.0) is Contact.AWAY
    assert scene.looked(1100.6) is Contact.LOST


def test_a_daemon_that_was_restarted_counts_from_its_own_start() -> None:
    scene = Scene()
    assert scene.looked(1015.0) is Contact.AWAY
    assert scene.looked(1100.5) is Contact.AWAY
    assert scene.looked(1100.6) is Contact.LOST


def test_a_wall_clock_that_jumps_changes_nothing() -> None:
    scene = Scene()
    scene.heard(1000.0, RUN)
    scene.clock.jump_s = 7200.0
    assert scene.looked(1014.0) is Contact.HERE


def test_a_machine_without_leases_is_never_lost_by_itself() -> None:
    scene = Scene()
    node = scene.state.nodes["a"]

    scene.state.nodes["a"] = replace(node, lease_s=0.0)
    assert scene.looked(1015.0) is Contact.AWAY
    assert scene.looked(1e9) is Contact.AWAY


def test_a_lost_machine_that_comes_back_is_cleaned_first_and_needs_nobodys_help() -> None:
    scene = Scene()
    scene.heard(1000.0, RUN)
    scene.looked(1015.0)
    scene.looked(1200.0)
    assert scene.heard(1300.0, RUN) is Contact.RETURNING  # its old run is no current attempt any more
    assert (scene.killed, scene.reached) == ([RUN], ["a"])
    assert scene.heard(1305.0) is Contact.HERE
