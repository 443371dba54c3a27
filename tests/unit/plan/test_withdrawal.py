"""A resize that is on its way and has become moot is withdrawn; one that still makes sense is not."""

from __future__ import annotations

import random

from swell.core import events as ev
from swell.core.events import Event, StopWhy
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec, Launcher
from swell.core.lifecycle import apply, replay
from swell.core.resources import Allocation, Gpu, Node, NodeCondition, Part
from swell.core.snapshot import Options
from swell.core.state import JobState, State
from swell.placement.registry import placer_named
from swell.plan.cycle import cycle
from swell.plan.deadlines import Patience, due
from swell.plan.enact import events_of
from swell.plan.explain import explain
from swell.plan.snapshotter import Snapshotter
from swell.policy.registry import policy_named
from swell.speed.book import Book

RUN = RunId(1, 1)
NODES = tuple(Node(name=name, gpus=(Gpu(index=0),), cpus=8, memory_mib=9000) for name in ("n1", "n2"))
ONE = Allocation(parts=(Part(node="n1", gpus=(0,), cpus=1),), gpu_type="gpu")


def job(**changes: object) -> JobSpec:
    return JobSpec(name="j", command=("x",), uses_library=True, epochs=1000, launcher=Launcher.PER_GPU, **changes)  # type: ignore[arg-type]


def growing() -> State:
    """Job 1 runs on one of two GPUs, and a first pass has asked it to stop so that it can have both."""
    state = replay(
        [
            *(ev.NodeObserved(node=node, at_s=0.0) for node in NODES),
            ev.JobSubmitted(job=1, spec=job(gpus=GpuRequest(min=1, max=2)), at_s=0.0),
            ev.RunPlanned(run=RUN, allocation=ONE, at_s=1.0),
            ev.RunStarted(run=RUN, at_s=2.0),
            ev.TrainingBegan(run=RUN, at_s=3.0, epochs=1000),
            ev.EpochEnded(run=RUN, at_s=103.0, epoch=1, epoch_s=100.0, gpus=1),
        ]
    )
    (asked,) = [event for event in passed(state, 200.0) if isinstance(event, ev.RunStopRequested)]
    assert asked.why is StopWhy.RESIZING
    return state


def passed(state: State, now_s: float) -> list[Event]:
    """One pass, made true."""
    snapshot, _ = Snapshotter(Book()).take(state, now_s, Options())
    policy, placer = policy_named("elastic-fifo"), placer_named("consolidated")
    plan = cycle(snapshot, policy, placer, state.policy_memory, random.Random(0))
    events = events_of(plan, state, now_s)
    for event in events:
        apply(state, event)
    return events


def test_a_resize_that_still_makes_sense_stands() -> None:
    state = growing()
    assert passed(state, 210.0) == []
    assert state.jobs[1].state is JobState.STOPPING


def test_a_growth_is_withdrawn_when_its_gpu_goes_to_a_job_that_comes_first() -> None:
    state = growing()
    apply(state, ev.JobSubmitted(job=2, spec=job(gpus=GpuRequest(min=1, max=1), priority=10), at_s=205.0))
    withdrawn, started = passed(state, 210.0)[:2]
    assert isinstance(withdrawn, ev.RunStopWithdrawn)
    assert isinstance(started, ev.RunPlanned)
    assert started.allocation.nodes == ("n2",)
    assert state.jobs[1].state is JobState.RUNNING


def test_a_growth_is_withdrawn_when_the_machine_it_was_for_is_gone() -> None:
    state = growing()
    apply(state, ev.NodeConditionChanged(node="n2", condition=NodeCondition.LOST, at_s=205.0))
    assert [type(event) for event in passed(state, 210.0)][:1] == [ev.RunStopWithdrawn]


def test_never_once_the_ranks_have_agreed_on_where_to_leave() -> None:
    state = growing()
    apply(state, ev.StopAgreed(run=RUN, epoch=2, at_s=201.0))
    apply(state, ev.NodeConditionChanged(node="n2", condition=NodeCondition.LOST, at_s=205.0))
    assert not any(isinstance(event, ev.RunStopWithdrawn) for event in passed(state, 210.0))
    assert state.jobs[1].state is JobState.STOPPING


def test_after_a_withdrawal_for_want_of_a_checkpoint_it_is_left_alone_until_the_next_one() -> None:
    state = growing()
    (withdrawn,) = due(state, 400.0, Patience()).events
    apply(state, withdrawn)
    assert not any(isinstance(event, ev.RunStopRequested) for event in passed(state, 420.0))
    text = " ".join(explain(state, state.jobs[1], (), 430.0).sentences)
    assert "its resize (1 -> 2 GPUs) was withdrawn 30 s ago: it came to no checkpoint" in text
    assert "left as it is until its next checkpoint" in text
    apply(state, ev.EpochEnded(run=RUN, at_s=440.0, epoch=2, epoch_s=100.0, gpus=1))
    assert any(isinstance(event, ev.RunStopRequested) for event in passed(state, 450.0))
