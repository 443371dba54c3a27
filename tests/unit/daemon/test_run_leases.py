"""Leases of pods: given to current attempts only, in the asker's own clock, and never longer than the daemon counts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from swell.core.errors import Busy
from swell.core.events import Event
from swell.core.ids import RunId
from swell.core.lifecycle import replay
from swell.core.resources import Contact
from swell.core.state import State
from swell.daemon import run_leases
from swell.daemon.contacts import Contacts
from swell.daemon.run_leases import LeaseView, Leasing, RunLeases
from unit.core.test_contact import RUN, world
from unit.daemon.test_contacts import FakeClock

LEASE_S, EPOCH = 60.0, 3


class Scene:
    def __init__(self) -> None:
        self.state: State = world("a")
        self.clock = FakeClock()
        self.ours = True
        self.leased: list[tuple[RunId, str]] = []
        self.contacts = Contacts(lambda: self.state, self.commit, lambda _: None, lambda _: None, self.clock)
        how = Leasing(
            lease_s=LEASE_S, epoch=EPOCH, still_ours=self.still_ours, leased=lambda *asker: self.leased.append(asker)
        )
        self.leases = RunLeases(lambda: self.state, self.contacts, self.clock, how)

    async def commit(self, events: Sequence[Event]) -> None:
        replay(events, self.state)

    async def still_ours(self) -> bool:
        return self.ours

    def renewed(self, at_s: float, run: RunId = RUN, node: str = "a", boot_s: float = 7.0) -> LeaseView | None:
        self.clock.s = at_s
        return asyncio.run(self.leases.renew(run, node, boot_s))

    def looked(self, at_s: float) -> Contact:
        self.clock.s = at_s
        asyncio.run(self.contacts.look())
        return self.state.nodes["a"].contact


def test_the_end_is_in_the_clock_of_the_asker() -> None:
    scene = Scene()
    assert scene.renewed(1000.0) == LeaseView(until_s=7.0 + LEASE_S, epoch=EPOCH, every_s=3.0)
    assert scene.leased == [(RUN, "a")], "noted before it is answered"


def test_a_run_that_is_no_current_attempt_there_has_to_leave() -> None:
    scene = Scene()
    assert scene.renewed(1000.0, RunId(RUN.job, RUN.attempt + 1)) is None
    assert scene.renewed(1000.0, RunId(99, 1)) is None
    assert scene.renewed(1000.0, node="b") is None
    assert scene.leased == []


def test_a_daemon_that_may_have_lost_its_database_renews_nothing() -> None:
    scene = Scene()
    scene.ours = False
    with pytest.raises(Busy):
        scene.renewed(1000.0)


def test_a_node_is_lost_only_when_the_last_lease_that_was_given_is_over() -> None:
    scene = Scene()
    assert scene.looked(1015.0) is Contact.AWAY
    scene.renewed(1050.0)
    over_s = 1050.0 + 1.01 * LEASE_S + 30.0 + 10.0
    assert scene.looked(over_s - 0.1) is Contact.AWAY, "its pod asks, though its machine does not answer"
    assert scene.looked(over_s) is Contact.LOST
    assert scene.renewed(over_s) is None, "what is left of it has to leave"


def test_a_longer_lease_of_the_log_is_not_shortened_before_the_log_says_so() -> None:
    scene = Scene()
    scene.state.nodes["a"] = replace(scene.state.nodes["a"], lease_s=600.0)
    told = scene.renewed(1000.0)
    assert told is not None
    assert told.until_s == 607.0


def test_leases_that_are_waived_have_no_end_and_get_one_again_only_when_all_runs_there_have_asked() -> None:
    async def leave(scene: Scene) -> None:
        leaving = asyncio.create_task(scene.leases.let_go())
        await asyncio.sleep(0)
        assert not leaving.done(), "its run has not asked yet"
        told = await scene.leases.renew(RUN, "a", 7.0)
        assert told is not None
        assert told.until_s is None
        await leaving

    before = Scene()
    before.renewed(1000.0)
    asyncio.run(leave(before))
    after = Scene()
    after.state.nodes["a"] = replace(after.state.nodes["a"], lease_waived=True)
    assert after.looked(9000.0) is Contact.AWAY, "nothing follows from its silence"
    after.renewed(9001.0)
    assert not after.state.nodes["a"].lease_waived


def test_a_daemon_that_leaves_does_not_wait_for_runs_that_never_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_leases, "LET_GO_S", 0.01)
    scene = Scene()
    scene.renewed(1000.0)
    asyncio.run(scene.leases.let_go())
