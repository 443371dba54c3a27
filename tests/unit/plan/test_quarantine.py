"""Machines on which nothing starts any more."""

from __future__ import annotations

from dataclasses import replace

from swell.core import events as ev
from swell.core.events import ExitReason
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import apply
from swell.core.resources import Allocation, Contact, Gpu, Node, NodeCondition, Part
from swell.core.state import State
from swell.plan.deadlines import Patience
from swell.plan.deadlines import due as all_due
from swell.plan.quarantine import due

GPU2 = Node(name="gpu2", gpus=(Gpu(index=0),), lease_s=600.0, boot_id="b", contact=Contact.HERE)


def happened(*events: ev.Event, nodes: tuple[Node, ...] = (GPU2,)) -> State:
    state = State()
    for event in (*(ev.NodeObserved(node=node, at_s=0.0) for node in nodes), *events):
        apply(state, event)
    return state


def submitted(job: int, command: str = "") -> ev.Event:
    spec = JobSpec(name=f"j{job}", command=(command or f"train-{job}",), user="ada", retries=3)
    return ev.JobSubmitted(job=job, spec=spec, at_s=1.0)


def planned(job: int, attempt: int = 1, nodes: tuple[str, ...] = ("gpu2",)) -> ev.Event:
    parts = tuple(Part(node=name, gpus=(0,)) for name in nodes)
    return ev.RunPlanned(run=RunId(job, attempt), allocation=Allocation(parts=parts), at_s=2.0)


def failed(job: int, attempt: int = 1) -> ev.Event:
    reason = ExitReason.START_FAILED
    return ev.RunEnded(run=RunId(job, attempt), reason=reason, at_s=3.0, message="Read-only file system")


def one_failed_start(job: int, command: str = "") -> list[ev.Event]:
    return [submitted(job, command), planned(job), failed(job)]


def test_three_different_jobs_in_a_row_set_a_machine_aside_with_the_reason() -> None:
    state = happened(*one_failed_start(1), *one_failed_start(2))
    assert due(state, 9.0) == []
    for event in one_failed_start(3):
        apply(state, event)
    (event,) = due(state, 9.0)
    assert isinstance(event, ev.NodeConditionChanged)
    assert event.condition is NodeCondition.QUARANTINED
    assert event.why.startswith("jobs 1, 2 and 3 failed to start here one after the other (the last: Read-only")
    assert event in all_due(state, 9.0, Patience()).events
    apply(state, event)
    assert due(state, 10.0) == []
    assert not state.nodes["gpu2"].schedulable


def test_a_start_that_succeeds_in_between_begins_the_count_anew() -> None:
    started = [submitted(3), planned(3), ev.RunStarted(run=RunId(3, 1), at_s=3.0)]
    state = happened(*one_failed_start(1), *one_failed_start(2), *started, *one_failed_start(4))
    assert due(state, 9.0) == []
    assert state.nodes["gpu2"].failed_starts == (4,)


def test_one_job_that_fails_again_and_again_is_its_own_trouble() -> None:
    again = [planned(1, 2), failed(1, 2), planned(1, 3), failed(1, 3)]
    state = happened(*one_failed_start(1), *again)
    assert due(state, 9.0) == []


def test_the_same_command_submitted_three_times_is_one_mistake() -> None:
    state = happened(*(event for job in (1, 2, 3) for event in one_failed_start(job, "trian.py")))
    assert due(state, 9.0) == []


def test_uncordon_clears_it() -> None:
    state = happened(*(event for job in (1, 2, 3) for event in one_failed_start(job)))
    apply(state, due(state, 9.0)[0])
    apply(state, ev.NodeConditionChanged(node="gpu2", condition=NodeCondition.READY, at_s=10.0))
    assert state.nodes["gpu2"].failed_starts == ()
    assert due(state, 11.0) == []
    assert state.nodes["gpu2"].schedulable


def test_the_daemons_own_machine_and_runs_over_several_machines_are_never_blamed() -> None:
    own = replace(GPU2, lease_s=0.0, boot_id="")
    state = happened(*(event for job in (1, 2, 3) for event in one_failed_start(job)), nodes=(own,))
    assert due(state, 9.0) == []
    both = [[submitted(job), planned(job, nodes=("gpu2", "gpu3")), failed(job)] for job in (1, 2, 3)]
    state = happened(*(event for run in both for event in run), nodes=(GPU2, replace(GPU2, name="gpu3")))
    assert due(state, 9.0) == []


def test_measuring_a_machine_again_forgets_nothing_of_it() -> None:
    state = happened(
        *one_failed_start(1), *one_failed_start(2), ev.NodeObserved(node=GPU2, at_s=5.0), *one_failed_start(3)
    )
    assert len(due(state, 9.0)) == 1
