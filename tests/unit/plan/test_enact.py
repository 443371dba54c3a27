"""A plan becomes events: stops, resizes, starts, and what policies remember."""

from __future__ import annotations

from dataclasses import replace

from swell.core import events as ev
from swell.core.decision import Plan, Resize, Start, Stop
from swell.core.events import StopWhy
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec, Launcher
from swell.core.lifecycle import apply, replay
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.core.state import State
from swell.plan.enact import events_of

NODE = Node(name="a", gpus=tuple(Gpu(index=i) for i in range(4)), cpus=8)
ONE = Allocation(parts=(Part(node="a", gpus=(0,)),), gpu_type="gpu")
TWO = Allocation(parts=(Part(node="a", gpus=(0, 1)),), gpu_type="gpu")


def state(*, running: bool) -> State:
    spec = JobSpec(name="j", command=("x",), gpus=GpuRequest(min=1, max=4), launcher=Launcher.HOROVOD)
    made = replay([ev.NodeObserved(node=NODE, at_s=0.0), ev.JobSubmitted(job=1, spec=spec, at_s=1.0)])
    if running:
        apply(made, ev.RunPlanned(run=RunId(1, 1), allocation=ONE, at_s=2.0))
        apply(made, ev.RunStarted(run=RunId(1, 1), at_s=3.0))
    return made


def test_a_resize_in_place_becomes_an_event_of_the_same_run() -> None:
    plan = Plan(resizes=(Resize(job=1, allocation=TWO, reason="1 -> 2 GPUs"),))
    resized = ev.RunResized(run=RunId(1, 1), allocation=TWO, at_s=5.0, reason="1 -> 2 GPUs")
    now = state(running=True)
    assert events_of(plan, now, 5.0) == [resized]
    apply(now, resized)
    assert now.jobs[1].allocation == TWO
    assert events_of(plan, state(running=False), 5.0) == [], "the run ended while the plan was made"
    apply(now, ev.RunStopRequested(run=RunId(1, 1), why=StopWhy.PREEMPTED, at_s=6.0))
    assert events_of(plan, now, 7.0) == [], "the run was asked to stop while the plan was made"


def test_a_start_is_the_next_attempt_and_a_stop_names_its_run() -> None:
    start = Plan(starts=(Start(job=1, allocation=ONE, reason="r"),))
    (planned,) = events_of(start, state(running=False), 5.0)
    assert planned == ev.RunPlanned(run=RunId(1, 1), allocation=ONE, at_s=5.0, reason="r")
    assert events_of(start, state(running=True), 5.0) == []
    stop = Plan(stops=(Stop(job=1, why=StopWhy.PREEMPTED, reason="r"),))
    (asked,) = events_of(stop, state(running=True), 5.0)
    assert asked == ev.RunStopRequested(run=RunId(1, 1), why=StopWhy.PREEMPTED, at_s=5.0, reason="r")


def test_what_policies_remember_is_written_down_only_when_it_changed() -> None:
    now = state(running=False)
    remembered = Plan(memory={"a": 1})
    assert events_of(remembered, now, 5.0) == [ev.PolicyRemembered(memory={"a": 1}, at_s=5.0)]
    now.policy_memory = {"a": 1}
    assert events_of(replace(remembered, memory={"a": 1}), now, 5.0) == []
