"""What may be concluded of a silent machine: almost nothing, and never too early."""

from __future__ import annotations

import pytest

from swell.core import contact as rules
from swell.core import events as ev
from swell.core.events import ExitReason
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import replay
from swell.core.resources import Allocation, Contact, Gpu, Node, NodeCondition, Part
from swell.core.state import JobState, State
from swell.plan.deadlines import Patience, due
from swell.plan.explain import sentence as sentence_of
from swell.plan.held_back import HeldBack
from swell.plan.snapshotter import as_scheduled

RUN = RunId(1, 1)


def world(*on: str, contact: Contact = Contact.HERE) -> State:
    """Job 1 runs on these machines, of a and b, which have both been heard."""
    nodes = [Node(name=name, gpus=(Gpu(index=0),), lease_s=60.0) for name in ("a", "b")]
    spec = JobSpec(name="j", command=("true",), grace_s=30.0, time_limit_s=100.0)
    allocation = Allocation(parts=tuple(Part(node=name, gpus=(0,)) for name in on), gpu_type="gpu")
    events: list[ev.Event] = [
        *(ev.NodeObserved(node=node, at_s=0.0) for node in nodes),
        *(
            ev.NodeContactChanged(node=node.name, contact=Contact.HERE, at_s=0.0, boot_id=f"{node.name}1")
            for node in nodes
        ),
        ev.JobSubmitted(job=1, spec=spec, at_s=0.0),
        ev.RunPlanned(run=RUN, allocation=allocation, at_s=1.0),
        ev.RunStarted(run=RUN, at_s=2.0),
    ]
    if contact is not Contact.HERE:
        events.append(ev.NodeContactChanged(node="a", contact=contact, at_s=20.0))
    return replay(events)


def contacts(events: list[ev.Event]) -> list[tuple[str, Contact]]:
    return [(event.node, event.contact) for event in events if isinstance(event, ev.NodeContactChanged)]


def test_the_bound_of_a_lease_covers_drift_grace_and_sweep() -> None:
    assert rules.lease_until_s(boot_s=500.0, lease_s=600.0) == 1100.0
    assert rules.over_by_s(renewed_s=100.0, lease_s=600.0, grace_s=30.0) == 100.0 + 606.0 + 30.0 + 10.0


@pytest.mark.parametrize(
    ("contact", "condition", "seen_as"),
    [
        (Contact.HERE, NodeCondition.READY, NodeCondition.READY),
        (Contact.AWAY, NodeCondition.READY, NodeCondition.CORDONED),
        (Contact.AWAY, NodeCondition.DRAINING, NodeCondition.CORDONED),
        (Contact.RETURNING, NodeCondition.READY, NodeCondition.CORDONED),
        (Contact.LOST, NodeCondition.READY, None),
    ],
)
def test_a_silent_machine_keeps_what_it_runs_and_a_lost_one_is_not_there(
    contact: Contact, condition: NodeCondition, seen_as: NodeCondition | None
) -> None:
    seen = as_scheduled(Node(name="a", contact=contact, condition=condition))
    assert (seen.condition if seen else None) is seen_as
    assert seen is None or seen.schedulable == (seen_as is NodeCondition.READY)


def test_a_machine_that_is_watched_takes_nothing_before_it_has_answered() -> None:
    assert not Node(name="a", lease_s=60.0).schedulable
    assert Node(name="a", lease_s=60.0, boot_id="a1").schedulable
    assert Node(name="a").schedulable


def test_limits_of_a_run_are_not_enforced_while_its_machine_is_silent() -> None:
    assert due(world("a"), 500.0, Patience()).events
    assert not due(world("a", contact=Contact.AWAY), 500.0, Patience()).events


def test_a_cordon_and_a_contact_survive_what_is_measured() -> None:
    state = world("a", contact=Contact.AWAY)
    seen = Node(name="a", gpus=(Gpu(index=0), Gpu(index=1)))
    replay([ev.NodeConditionChanged(node="a", condition=NodeCondition.CORDONED, at_s=21.0)], state)
    node = replay([ev.NodeObserved(node=seen, at_s=22.0)], state).nodes["a"]
    assert (node.contact, node.condition, node.boot_id) == (Contact.AWAY, NodeCondition.CORDONED, "a1")
    assert (node.lease_s, node.contact_s, len(node.gpus)) == (60.0, 20.0, 2)


def test_losing_a_machine_ends_its_runs_in_the_same_commit_without_counting_a_retry() -> None:
    state = world("a", contact=Contact.AWAY)
    events = rules.lost(state, "a", 100.0, "its leases are over")
    assert [type(event) for event in events] == [ev.RunEnded, ev.NodeContactChanged]
    job = replay(events, state).jobs[1]
    assert (job.state, job.failures, job.lost_runs) == (JobState.QUEUED, 0, 0)
    assert job.run is not None
    assert job.run.exit_reason is ExitReason.NODE_LOST
    assert state.nodes["a"].contact is Contact.LOST


def test_a_job_is_never_given_up_for_losing_machines() -> None:
    state = world("a", contact=Contact.AWAY)
    for attempt in range(2, 40):
        replay(rules.lost(state, "a", 100.0, ""), state)
        assert state.jobs[1].state is JobState.QUEUED
        allocation = Allocation(parts=(Part(node="a", gpus=(0,)),))
        replay([ev.RunPlanned(run=RunId(1, attempt), allocation=allocation, at_s=101.0)], state)


def test_other_machines_of_a_lost_run_are_cleaned_before_anything_new_starts_there() -> None:
    events = rules.lost(world("a", "b", contact=Contact.AWAY), "a", 100.0, "")
    assert contacts(events) == [("a", Contact.LOST), ("b", Contact.RETURNING)]


def test_a_job_never_starts_again_while_its_run_may_live_on_another_of_its_machines() -> None:
    state = world("a", "b", contact=Contact.AWAY)
    replay(rules.lost(state, "a", 100.0, ""), state)
    reason = HeldBack(state, 101.0).reason(state.jobs[1])
    assert reason is not None
    assert "what is left of that run on b has to be gone first" in sentence_of(reason)
    replay(rules.heard(state, state.nodes["b"], "b1", (RUN,), 102.0), state)
    assert HeldBack(state, 103.0).reason(state.jobs[1]) is not None
    replay(rules.heard(state, state.nodes["b"], "b1", (), 104.0), state)
    assert HeldBack(state, 105.0).reason(state.jobs[1]) is None


def test_a_machine_that_was_booted_has_lost_its_runs() -> None:
    state = world("a")
    events = rules.heard(state, state.nodes["a"], "a2", (), 50.0)
    assert contacts(events) == [("a", Contact.LOST), ("a", Contact.RETURNING)]
    assert replay(events, state).jobs[1].state is JobState.QUEUED
    assert state.nodes["a"].boot_id == "a2"
    assert contacts(rules.heard(state, state.nodes["a"], "a2", (), 51.0)) == [("a", Contact.HERE)]


@pytest.mark.parametrize("before", [Contact.HERE, Contact.AWAY, Contact.LOST])
def test_a_machine_with_old_runs_is_cleaned_and_one_without_is_here(before: Contact) -> None:
    state = world("a", contact=before)
    old = RunId(1, 7)
    assert rules.stale_runs(state, [RUN, old]) == [old]
    assert contacts(rules.heard(state, state.nodes["a"], "a1", (old,), 50.0)) == [("a", Contact.RETURNING)]
    expected = [] if before is Contact.HERE else [("a", Contact.HERE)]
    assert contacts(rules.heard(state, state.nodes["a"], "a1", (RUN,), 50.0)) == expected


def test_people_read_how_long_a_machine_is_away_and_what_its_jobs_do() -> None:
    state = world("a", contact=Contact.AWAY)
    said = rules.sentence(state, state.nodes["a"], 40.0)
    assert said == "a away for 20 s; its job keeps running without the daemon for 25 s more at most"
    assert rules.sentence(state, state.nodes["b"], 40.0) == ""


def test_people_never_read_of_time_that_a_lease_no_longer_has() -> None:
    state = world("a", contact=Contact.AWAY)
    assert rules.sentence(state, state.nodes["a"], 65.0).endswith(
        "keeps running without the daemon for 0 s more at most"
    )
    assert rules.sentence(state, state.nodes["a"], 900.0).endswith("for 0 s more at most")
