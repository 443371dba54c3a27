"""Explain is never wrong: what it advises, done as a person would do it, starts the job."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swell.core.events import JobCancelled, JobSubmitted, JobUpdated, NodeObserved
from swell.core.job import GpuRequest, JobSpec, Launcher
from swell.core.lifecycle import apply
from swell.core.resources import Contact, Gpu, GpuHealth, Node, NodeCondition
from swell.core.snapshot import Options
from swell.core.state import JobState, State
from swell.placement.registry import placer_named
from swell.plan.cycle import cycle
from swell.plan.enact import events_of
from swell.plan.snapshotter import Snapshotter
from swell.policy.registry import policy_named
from swell.sim.cheapest_change import Relaxation, Trial, _candidates
from swell.sim.cluster import parse_cluster
from swell.sim.duration_world import Durations
from swell.sim.engine import Setup, Simulation
from swell.sim.forecast import copy_of
from swell.sim.workload import Arrival, Workload
from swell.speed.book import Book

CLUSTERS = ("1x4", "2x4", "1x2xold,1x4xnew")
OPTIONS = Options()
PINNED = GpuRequest(min=4, max=4, types=("gpu",))


@st.composite
def specs(draw: st.DrawFn) -> JobSpec:
    low = draw(st.integers(1, 8))
    high = draw(st.sampled_from([low, low, 2 * low]))
    types = draw(st.sampled_from([(), (), ("old",), ("new",)]))
    return JobSpec(
        name="j",
        command=("x",),
        gpus=GpuRequest(min=low, max=high, types=types),
        launcher=Launcher.PER_GPU,
        priority=draw(st.sampled_from([0, 0, -10, 10])),
        uses_library=draw(st.booleans()),
        estimated_s=draw(st.sampled_from([0.0, 100.0, 10000.0])),
    )


def busy_cluster(cluster: str, jobs: list[JobSpec], policy: str) -> tuple[State, float]:
    """A state as it is after a while: some run, some wait."""
    arrivals = tuple(Arrival(at_s=10.0 * i, spec=spec, truth={"duration_s": 5000.0}) for i, spec in enumerate(jobs))
    now_s = 10.0 * len(jobs) + 60.0
    setup = Setup(
        nodes=parse_cluster(cluster), policy=policy_named(policy), placer=placer_named("consolidated"), until_s=now_s
    )
    simulation = Simulation(setup, Durations(), Book())
    simulation.run(Workload(name="w", arrivals=arrivals))
    return simulation.state, now_s


def starts_within_passes(state: State, policy: str, now_s: float, job: int) -> bool:
    """By the daemon's own steps, one by one: snapshotter, cycle, events; a stop ends at once."""
    from swell.core.events import ExitReason, RunEnded, RunStopRequested

    snapshotter, chosen, placer = Snapshotter(Book()), policy_named(policy), placer_named("consolidated")
    for _ in range(8):
        snapshot, _ = snapshotter.take(state, now_s, OPTIONS)
        plan = cycle(snapshot, chosen, placer, state.policy_memory, random.Random(state.seq))
        for event in events_of(plan, state, now_s):
            apply(state, event)
            if isinstance(event, RunStopRequested):
                apply(state, RunEnded(run=event.run, reason=ExitReason.STOPPED, at_s=now_s))
        if state.jobs[job].holding:
            return True
    return False


@pytest.mark.parametrize("policy", ["fifo", "elastic-fifo", "srjf", "tiresias", "afs-l", "swell"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cluster=st.sampled_from(CLUSTERS), jobs=st.lists(specs(), min_size=2, max_size=7))
def test_a_job_starts_after_what_was_advised(policy: str, cluster: str, jobs: list[JobSpec]) -> None:
    state, now_s = busy_cluster(cluster, jobs, policy)
    moment = Trial(state, Book(), policy_named(policy), placer_named("consolidated"), OPTIONS, now_s)
    for job in list(state.active):
        if state.jobs[job].state is not JobState.QUEUED:
            continue
        advice = moment.cheapest(job).change
        if advice is None:
            continue
        changed = copy_of(state)
        for event in advice.events:
            apply(changed, event)
        assert starts_within_passes(changed, policy, now_s, advice.job), advice.advice


def test_a_job_that_is_too_large_for_now_is_told_to_be_smaller() -> None:
    state = State()
    for node in parse_cluster("1x4"):
        apply(state, NodeObserved(node=node, at_s=0.0))
    pinned = JobSpec(name="a", command=("x",), gpus=GpuRequest(min=2, max=2))
    large = JobSpec(name="b", command=("x",), gpus=GpuRequest(min=4, max=4))
    apply(state, JobSubmitted(job=1, spec=pinned, at_s=0.0))
    policy, placer = policy_named("fifo"), placer_named("consolidated")
    assert starts_within_passes(state, "fifo", 1.0, 1)
    apply(state, JobSubmitted(job=2, spec=large, at_s=2.0))
    moment = Trial(state, Book(), policy, placer, OPTIONS, 3.0)
    advice = moment.cheapest(2).change
    assert advice is not None
    assert advice.advice == "ask for 2 GPUs instead of 4: swell update 2 gpus=2; it starts at once"
    assert advice.events == (JobUpdated(job=2, gpus=GpuRequest(min=2, max=2), at_s=3.0),), "as inelastic as before"
    assert moment.cheapest(1).change is None  # it runs


def advised(request: GpuRequest, held: int = 2) -> Relaxation:
    """To a job that waits behind one that holds so many of four GPUs and cannot be moved."""
    state = State()
    for node in parse_cluster("1x4"):
        apply(state, NodeObserved(node=node, at_s=0.0))
    before = JobSpec(name="a", command=("x",), gpus=GpuRequest(min=held, max=held))
    apply(state, JobSubmitted(job=1, spec=before, at_s=0.0))
    assert starts_within_passes(state, "fifo", 1.0, 1)
    wanted = JobSpec(name="b", command=("x",), gpus=request, uses_library=True)
    apply(state, JobSubmitted(job=2, spec=wanted, at_s=2.0))
    moment = Trial(state, Book(), policy_named("fifo"), placer_named("consolidated"), OPTIONS, 3.0)
    found = moment.cheapest(2).change
    assert found is not None
    return found


def test_an_elastic_job_may_still_get_as_many_as_before() -> None:
    found = advised(GpuRequest(min=3, max=4))
    assert found.events == (JobUpdated(job=2, gpus=GpuRequest(min=2, max=4), at_s=3.0),)
    assert found.advice == (
        "let it run with 2 GPUs (gpus.min: 2 instead of 3): swell update 2 gpus=2-4; it starts at once"
    )


def test_what_else_it_asks_of_its_gpus_it_asks_again() -> None:
    request = GpuRequest(min=3, max=4, start=3, allowed=(3, 4), exclude=("slow",))
    found = advised(request)
    cancelled, submitted = found.events
    assert cancelled == JobCancelled(job=2, at_s=3.0)
    assert isinstance(submitted, JobSubmitted)
    assert (submitted.job, found.job) == (3, 3)
    assert submitted.spec.gpus == replace(request, min=2, max=4, start=2, allowed=())
    assert found.advice == (
        "let it run with 2 GPUs (gpus.min: 2 instead of 3): cancel it and submit it again; it starts at once"
    )


def test_one_gpu_is_one_gpu() -> None:
    assert advised(GpuRequest(min=2, max=2), held=3).advice.startswith("ask for 1 GPU instead of 2: ")
    assert advised(GpuRequest(min=2, max=4), held=3).advice.startswith(
        "let it run with 1 GPU (gpus.min: 1 instead of 2)"
    )


def test_a_new_node_is_like_the_largest_one_and_nothing_is_wrong_with_it() -> None:
    """Whatever is wrong with that one."""
    state = State()
    gpus = tuple(Gpu(index=i, type="gpu") for i in range(4))
    busy = tuple(
        replace(gpu, health=GpuHealth.QUARANTINED, others=True, others_memory_mib=7, why="hot") for gpu in gpus
    )
    large = Node(name="large", gpus=busy, cpus=8, condition=NodeCondition.CORDONED, why="hot", contact=Contact.AWAY)
    apply(state, NodeObserved(node=large, at_s=0.0))
    apply(state, JobSubmitted(job=1, spec=JobSpec(name="a", command=("x",), gpus=PINNED), at_s=0.0))
    moment = Trial(state, Book(), policy_named("fifo"), placer_named("consolidated"), OPTIONS, 3.0)
    found = moment.cheapest(1).change
    assert found is not None
    assert found.advice.startswith("add a node with 4 GPUs like large: swell node add")
    fresh = replace(large, name="new1", gpus=gpus, condition=NodeCondition.READY, why="", contact=Contact.HERE)
    assert found.events == (NodeObserved(node=fresh, at_s=3.0),)


def test_as_many_new_nodes_as_a_job_needs_are_named() -> None:
    state = State()
    for node in parse_cluster("1x2"):
        apply(state, NodeObserved(node=replace(node, name="new1"), at_s=0.0))
    spec = JobSpec(name="a", command=("x",), gpus=GpuRequest(min=8, max=8, allowed=(8,)), launcher=Launcher.PER_GPU)
    apply(state, JobSubmitted(job=1, spec=spec, at_s=0.0))
    found = [one for one in _candidates(state, state.jobs[1], 3.0) if one.advice.startswith("add ")]
    assert [one.advice.split(" with ")[0] for one in found] == [
        "add a node",
        "add 2 nodes",
        "add 4 nodes",
        "add 8 nodes",
    ]
    assert [len(one.events) for one in found] == [1, 2, 4, 8]
    names = [event.node.name for event in found[-1].events if isinstance(event, NodeObserved)]
    assert len({*names, "new1"}) == 9, "none of a name that there is"


def test_changes_that_there_is_no_time_for_are_counted() -> None:
    state = State()
    for node in parse_cluster("1x4"):
        apply(state, NodeObserved(node=node, at_s=0.0))
    whole = JobSpec(name="a", command=("x",), gpus=GpuRequest(min=4, max=4))
    for job in (1, 2):
        apply(state, JobSubmitted(job=job, spec=whole, at_s=0.0))
    assert starts_within_passes(state, "fifo", 1.0, 1)
    moment = Trial(state, Book(), policy_named("fifo"), placer_named("consolidated"), OPTIONS, 3.0)
    found = moment.cheapest(2, enough=lambda: True)
    assert found.change is None
    assert found.left_out > 3


def test_a_change_that_did_not_start_a_job_is_not_tried_for_the_next_of_its_array() -> None:
    state = State()
    for node in parse_cluster("1x4"):
        apply(state, NodeObserved(node=node, at_s=0.0))
    pinned = JobSpec(name="a", command=("x",), gpus=GpuRequest(min=4, max=4))
    apply(state, JobSubmitted(job=1, spec=pinned, at_s=0.0))
    assert starts_within_passes(state, "fifo", 1.0, 1)
    for job in range(2, 60):
        spec = replace(pinned, name=f"b-{job}", env={"INDEX": str(job)}, array_index=job)
        apply(state, JobSubmitted(job=job, spec=spec, at_s=float(job)))
    book = Book()
    moment = Trial(state, book, policy_named("fifo"), placer_named("consolidated"), OPTIONS, 100.0)
    tried: list[int] = []

    def advice(job: int) -> str:
        before = len(tried)

        def never() -> bool:
            tried.append(job)
            return False

        found = moment.cheapest(job, enough=never)
        assert found.left_out == 0
        tries.append(len(tried) - before)
        return found.change.advice if found.change else ""

    tries: list[int] = []
    assert advice(2).startswith("add a node"), "the next in order"
    assert not advice(40)
    assert not advice(50)
    assert tries[1] > 3
    assert tries[2] == 0
    assert not advice(39), "one that came before is tried"
    assert tries[3] == tries[1]
