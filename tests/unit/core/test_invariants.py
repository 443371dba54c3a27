"""Each law is reported when it is broken: a check that cannot fail is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.core import events as ev
from swell.core.events import Event, ExitReason, StopWhy
from swell.core.ids import RunId
from swell.core.invariants import stops_for_nothing, violations
from swell.core.job import GpuRequest, JobSpec
from swell.core.lifecycle import replay
from swell.core.resources import Allocation, Gpu, Node, Part, Share
from swell.core.state import State

NODE = Node(name="a", gpus=tuple(Gpu(index=i, memory_mib=16_000) for i in range(4)), cpus=8, memory_mib=1000)


def on(*gpus: int, share: Share | None = None) -> Allocation:
    return Allocation(parts=(Part(node="a", gpus=gpus),), gpu_type="gpu", share=share)


def spec(low: int = 1, high: int = 1, *, share: bool = False, priority: int = 0) -> JobSpec:
    request = GpuRequest(min=low, max=high, share=share)
    return JobSpec(name="j", command=("x",), gpus=request, priority=priority)


def state_of(*jobs: tuple[JobSpec, Allocation]) -> State:
    events: list[Event] = [ev.NodeObserved(node=NODE, at_s=0.0)]
    for number, (job, place) in enumerate(jobs, start=1):
        events += [
            ev.JobSubmitted(job=number, spec=job, at_s=1.0),
            ev.RunPlanned(run=RunId(number, 1), allocation=place, at_s=2.0),
        ]
    return replay(events)


def test_a_state_in_which_all_is_well() -> None:
    shares = [(spec(share=True), on(3, share=Share(memory_mib=8_000, milli=500)))] * 2
    assert violations(state_of((spec(2, 2), on(0, 1)), *shares)) == []


def test_an_ended_job_that_is_listed_as_active_is_reported() -> None:
    state = state_of((spec(), on(0)))
    replay([ev.RunEnded(run=RunId(1, 1), reason=ExitReason.FINISHED, at_s=3.0)], state)
    state.active, state.ended = state.ended, state.active
    assert "job 1 has ended but is listed as active" in violations(state)


def test_a_size_that_is_not_allowed_is_reported() -> None:
    assert violations(state_of((spec(2, 2), on(0)))) == ["job 1 holds 1 GPUs, allowed are (2,)"]


def test_a_share_has_no_size_to_be_wrong() -> None:
    assert violations(state_of((spec(2, 2, share=True), on(0, share=Share(memory_mib=1, milli=1))))) == []


def test_more_memory_reserved_than_a_gpu_has_is_reported() -> None:
    piece = (spec(share=True), on(2, share=Share(memory_mib=9_000, milli=400)))
    assert violations(state_of(piece, piece)) == ["GPU 2 of a has 16000 MiB, 18000 are reserved"]


def test_a_gpu_held_twice_is_reported() -> None:
    assert violations(state_of((spec(), on(0)), (spec(), on(0)))) == ["GPU 0 of a is held by jobs [1, 2]"]
    piece = (spec(share=True), on(0, share=Share(memory_mib=1, milli=1)))
    assert violations(state_of((spec(), on(0)), piece)) == ["GPU 0 of a is held by jobs [1, 2]"]


def life(why: StopWhy, after: Allocation, *between: Event) -> list[Event]:
    return [
        ev.JobSubmitted(job=1, spec=spec(1, 4), at_s=1.0),
        ev.RunPlanned(run=RunId(1, 1), allocation=on(0, 1), at_s=2.0),
        ev.RunStopRequested(run=RunId(1, 1), why=why, at_s=3.0),
        *between,
        ev.RunEnded(run=RunId(1, 1), reason=ExitReason.STOPPED, at_s=4.0),
        ev.RunPlanned(run=RunId(1, 2), allocation=after, at_s=5.0),
    ]


@pytest.mark.parametrize(
    ("why", "after", "wrong"),
    [
        (StopWhy.RESIZING, on(0, 1), True),
        (StopWhy.RESIZING, on(2, 3), True),
        (StopWhy.RESIZING, on(0, 1, 2), False),
        (StopWhy.MIGRATING, on(0, 1), True),
        (StopWhy.MIGRATING, on(2, 3), False),
        (StopWhy.PREEMPTED, on(0, 1), False),
    ],
)
def test_a_stop_for_nothing_is_reported(why: StopWhy, after: Allocation, wrong: bool) -> None:
    assert bool(stops_for_nothing(life(why, after))) is wrong


def test_a_plan_that_news_overtook_was_not_for_nothing() -> None:
    urgent = ev.JobSubmitted(job=2, spec=spec(priority=10), at_s=3.5)
    node = ev.NodeObserved(node=NODE, at_s=3.5)
    assert stops_for_nothing(life(StopWhy.RESIZING, on(0, 1), urgent)) == []
    assert stops_for_nothing(life(StopWhy.RESIZING, on(0, 1), node)) == []
    plain = replace(urgent, spec=spec())
    assert stops_for_nothing(life(StopWhy.RESIZING, on(0, 1), plain)) == [
        "run 1.2 has at 5 s what the run before it was stopped to give up"
    ]
