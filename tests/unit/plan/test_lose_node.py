"""A person's word that a machine is off."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.core import events as ev
from swell.core.errors import Conflict, NotFound
from swell.core.events import ExitReason
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import apply
from swell.core.resources import Allocation, Contact, Gpu, Node, Part
from swell.core.state import JobState, State
from swell.plan.commands import lose_node

GPU2 = Node(name="gpu2", gpus=(Gpu(index=0),), lease_s=600.0, boot_id="b")


def cluster(node: Node) -> State:
    state = State()
    run = RunId(1, 1)
    for event in (
        ev.NodeObserved(node=node, at_s=0.0),
        ev.JobSubmitted(job=1, spec=JobSpec(name="j", command=("train",), retries=0), at_s=1.0),
        ev.RunPlanned(run=run, allocation=Allocation(parts=(Part(node="gpu2", gpus=(0,)),)), at_s=2.0),
        ev.RunStarted(run=run, at_s=3.0),
    ):
        apply(state, event)
    return state


def test_its_runs_end_as_lost_with_who_reported_it_and_count_against_nobody() -> None:
    state = cluster(replace(GPU2, contact=Contact.AWAY))
    for event in lose_node(state, "gpu2", by="ada", now_s=9.0):
        apply(state, event)
    job = state.jobs[1]
    assert (job.state, job.failures) == (JobState.QUEUED, 0)
    assert job.run is not None
    assert job.run.exit_reason is ExitReason.NODE_LOST
    assert "ada reported that it is switched off" in job.run.message
    assert state.nodes["gpu2"].contact is Contact.LOST
    assert lose_node(state, "gpu2", by="ada", now_s=10.0) == []


def test_a_machine_that_answers_is_never_taken_for_off() -> None:
    with pytest.raises(Conflict, match="swell node drain gpu2"):
        lose_node(cluster(GPU2), "gpu2", by="ada", now_s=9.0)


def test_the_daemons_own_machine_and_unknown_ones_are_refused() -> None:
    with pytest.raises(Conflict, match="daemon's own"):
        lose_node(cluster(replace(GPU2, lease_s=0.0, boot_id="")), "gpu2", by="", now_s=9.0)
    with pytest.raises(NotFound):
        lose_node(State(), "gpu2", by="", now_s=9.0)
