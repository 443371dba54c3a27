"""After which silence the runs on a node of a cluster are over: only if all of them obey their lease."""

from __future__ import annotations

from swell.core.ids import RunId
from swell.executors.kubernetes.tracking import Tracked, lease_on, tracked_from_json
from swell.executors.verdict import Member, Roster


def run(*, lease_s: float = 600.0, leased: bool = False, up: bool = False) -> Tracked:
    members = (Member(rank=0, node="a", role="worker", gpus=(0,)),)
    tracked = Tracked(roster=Roster(run=RunId(7, 1), grace_s=30.0, members=members), namespace="n", lease_s=lease_s)
    tracked.leased |= {"a"} if leased else set()
    tracked.up |= {0} if up else set()
    return tracked


def test_a_node_with_runs_that_asked_for_their_lease_has_one() -> None:
    assert lease_on("a", [], 600.0, heard=True) == 600.0
    assert lease_on("a", [run(leased=True, up=True)], 600.0, heard=False) == 600.0


def test_a_run_that_began_without_asking_takes_the_lease_from_its_node_and_from_no_other() -> None:
    """An image without python3 cannot ask: nothing follows from the silence of its node."""
    began = run(up=True)
    assert lease_on("a", [run(leased=True), began], 600.0, heard=True) == 0.0
    assert lease_on("b", [began], 600.0, heard=True) == 600.0


def test_a_run_that_has_not_begun_counts_only_while_its_node_can_be_heard() -> None:
    assert lease_on("a", [run()], 600.0, heard=True) == 600.0, "it asks before it begins"
    assert lease_on("a", [run()], 600.0, heard=False) == 0.0, "it may have begun without asking"


def test_a_shorter_setting_does_not_shorten_what_a_run_was_launched_with() -> None:
    assert lease_on("a", [run(lease_s=600.0, leased=True)], 60.0, heard=True) == 600.0
    assert lease_on("a", [run(lease_s=0.0, up=True)], 60.0, heard=True) == 0.0, "launched before there were leases"


def test_what_is_known_of_leases_outlives_the_daemon() -> None:
    again = tracked_from_json(run(leased=True).to_json())
    assert again.lease_s == 600.0
    assert again.leased == {"a"}
