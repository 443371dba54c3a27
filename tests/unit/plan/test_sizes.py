"""Why a running job has as many GPUs as it has."""

from __future__ import annotations

from typing import Any

from swell.core import events as ev
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec
from swell.core.lifecycle import replay
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.core.state import State
from swell.plan.sizes import of_size
from swell.ports import Remaining

NODE = Node(name="n", gpus=tuple(Gpu(index=i) for i in range(4)))
LEFT = Remaining(at_speed_1_s=3600.0, as_of_s=0.0, known=True)


class Curve:
    """So fast on 1, 2, … GPUs."""

    def __init__(self, *rates: float) -> None:
        self._rates = rates

    def rate(self, gpus: int, nodes: int, gpu_type: str) -> float:
        return self._rates[gpus - 1]

    def curve(self, gpu_type: str) -> Any:
        return (0.0, *self._rates)


def world(*jobs: tuple[GpuRequest, tuple[int, ...], bool]) -> State:
    events: list[ev.Event] = [ev.NodeObserved(node=NODE, at_s=0.0)]
    for number, (request, held, library) in enumerate(jobs, 1):
        spec = JobSpec(name=f"job{number}", command=("true",), gpus=request, uses_library=library)
        events.append(ev.JobSubmitted(job=number, spec=spec, at_s=0.0))
        allocation = Allocation(parts=(Part(node="n", gpus=held),), gpu_type="gpu")
        events.append(ev.RunPlanned(run=RunId(number, 1), allocation=allocation, at_s=1.0))
        events.append(ev.RunStarted(run=RunId(number, 1), at_s=2.0))
    return replay(events)


def said(state: State, curve: Curve, remaining: Remaining = LEFT) -> list[str]:
    return of_size(state, state.jobs[1], lambda _: curve, remaining, 30.0)


def test_the_next_gpu_is_idle() -> None:
    state = world((GpuRequest(min=1, max=4), (0, 1), True))
    assert said(state, Curve(1.0, 1.8, 2.4, 2.8)) == [
        "2 GPUs make it 1.8 times as fast as one",
        "3 GPUs would make it 33% faster, so it would end 8 min sooner, for a restart of about 30 s",
        "2 GPUs that it could use are idle at present",
    ]


def test_the_others_have_it_and_what_it_is_worth_to_them() -> None:
    state = world((GpuRequest(min=1, max=4), (0, 1), True), (GpuRequest(min=1, max=2), (2, 3), True))
    assert said(state, Curve(1.0, 1.8, 2.4, 2.8))[-1] == (
        "job 2 (job2, priority 0) has 2 GPUs: the last one is worth 0.80 of its first GPU to that job, "
        "and would be worth 0.60 here"
    )
    state = world((GpuRequest(min=1, max=4), (0, 1), True), (GpuRequest(min=2, max=2), (2, 3), False))
    assert said(state, Curve(1.0, 1.8, 2.4, 2.8))[-1].startswith(
        "job 2 (job2, priority 0) has 2 GPUs until it ends: it"
    )
    state = world((GpuRequest(min=1, max=4), (0, 1), True), (GpuRequest(min=2, max=2), (2, 3), True))
    assert said(state, Curve(1.0, 1.8, 2.4, 2.8))[-1].endswith("has 2 GPUs, the least that it runs on")


def test_what_a_gpu_is_worth_is_relative_to_the_jobs_first_gpu() -> None:
    state = world((GpuRequest(min=1, max=4), (0, 1), True), (GpuRequest(min=1, max=2), (2, 3), True))
    assert said(state, Curve(10.0, 18.0, 24.0, 28.0))[-1] == said(state, Curve(1.0, 1.8, 2.4, 2.8))[-1]


def test_more_would_bring_nothing_or_was_not_asked_for_or_cannot_be_given() -> None:
    state = world((GpuRequest(min=1, max=4), (0,), True))
    assert said(state, Curve(1.0, 1.0, 1.0, 1.0)) == ["2 GPUs would not make it faster"]
    state = world((GpuRequest(min=1, max=2), (0, 1), True))
    assert "`swell update 1 gpus=1-3` would let it have more" in said(state, Curve(1.0, 1.8))[-1]
    state = world((GpuRequest(min=1, max=4), (0,), False))
    assert said(state, Curve(1.0, 1.8, 2.4, 2.8)) == [
        "its size stays as it is until it ends: it neither uses the swell library nor names a checkpoint directory"
    ]


def test_a_restart_is_never_of_0_s() -> None:
    state = world((GpuRequest(min=1, max=2), (0,), True))
    first = of_size(state, state.jobs[1], lambda _: Curve(1.0, 1.5), LEFT, 0.3)[0]
    assert first.endswith("for a restart of less than a second")


def test_nothing_is_promised_of_a_job_of_unknown_length() -> None:
    state = world((GpuRequest(min=1, max=2), (0,), True))
    unknown = Remaining(at_speed_1_s=3600.0, as_of_s=0.0)
    assert said(state, Curve(1.0, 1.5), unknown)[0] == "2 GPUs would make it 50% faster, for a restart of about 30 s"


def test_more_gpus_are_advised_only_where_there_are_more() -> None:
    less, all_of_them = GpuRequest(min=1, max=2), GpuRequest(min=1, max=4)
    assert said(world((less, (0, 1), True)), Curve(1.0, 1.8))[-1] == (
        "it asked for no more than 2 GPUs; `swell update 1 gpus=1-3` would let it have more"
    )
    assert said(world((all_of_them, (0, 1, 2, 3), True)), Curve(1.0, 1.8, 2.4, 2.8))[-1] == (
        "it asked for no more than 4 GPUs, and there are no more for it"
    )
