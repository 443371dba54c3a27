"""No policy gives jobs of a Kubernetes namespace more than its caps; a job that waits for a cap names it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from swell.core.decision import Plan, ReasonCode
from swell.core.errors import Infeasible
from swell.core.events import Event, JobSubmitted, NodeObserved, RunPlanned, RunStarted, RunStopRequested, StopWhy
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec, Launcher, PodOptions
from swell.core.lifecycle import replay
from swell.core.resources import Allocation, Cap, Capped, Gpu, Node, Part
from swell.core.snapshot import Options
from swell.placement.consolidated import Consolidated
from swell.plan.admit import check_feasible
from swell.plan.cycle import cycle
from swell.plan.explain import sentence
from swell.plan.snapshotter import Snapshotter
from swell.policy.registry import POLICIES, policy_named
from swell.speed.book import Book

NAMESPACE = "team"


def cap(what: Capped, most: int, **more: Any) -> Cap:
    return Cap(namespace=NAMESPACE, what=what, most=most, why="ResourceQuota q allows so much", **more)


def pods_node(name: str, *caps: Cap, gpu_type: str = "gpu", executor: str = "kubernetes") -> NodeObserved:
    gpus = tuple(Gpu(index=i, type=gpu_type) for i in range(4))
    made = Node(name=name, gpus=gpus, cpus=16, memory_mib=64_000, executor=executor, realm=executor, caps=caps)
    return NodeObserved(node=made, at_s=1.0)


def spec(low: int = 1, high: int = 1, *, pods: bool = True, namespace: str = "", **more: Any) -> JobSpec:
    more = {"gpus": GpuRequest(min=low, max=high), "launcher": Launcher.PER_GPU, "uses_library": True, **more}
    section = PodOptions(namespace=namespace) if pods else None
    return JobSpec(name="j", command=("x",), image="i" if pods else "", kubernetes=section, **more)


def submitted(job: int, given: JobSpec) -> JobSubmitted:
    return JobSubmitted(job=job, spec=given, at_s=1.0 + job / 100)


def running(job: int, node: str, gpus: tuple[int, ...], gpu_type: str = "gpu") -> list[Event]:
    held = Allocation(parts=(Part(node=node, gpus=gpus, cpus=len(gpus)),), gpu_type=gpu_type)
    run = RunId(job, 1)
    return [RunPlanned(run=run, allocation=held, at_s=2.0, reason="r"), RunStarted(run=run, at_s=2.0)]


def planned(policy: str, *events: Event) -> Plan:
    snapshot, _ = Snapshotter(Book()).take(replay(events), 200.0, Options())
    return cycle(snapshot, policy_named(policy), Consolidated(), {}, random.Random(0))


def gpus_started(plan: Plan) -> int:
    return sum(start.allocation.gpus for start in plan.starts)


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_never_more_gpus_than_the_namespace_may_have(policy: str) -> None:
    cluster = [pods_node("a", cap(Capped.GPUS, 3)), pods_node("b")]
    plan = planned(policy, *cluster, *(submitted(job, spec(1, 4)) for job in range(1, 7)))
    assert gpus_started(plan) == 3, "all that it may have, and not more"
    waiting = [job for job in range(1, 7) if job not in {start.job for start in plan.starts}]
    assert waiting
    for job in waiting:
        assert plan.explain()[job][0].code is ReasonCode.NAMESPACE
        assert "ResourceQuota q" in sentence(plan.explain()[job][0])


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_never_more_gpus_of_several_types_together(policy: str) -> None:
    cluster = [pods_node("a", cap(Capped.GPUS, 4), gpu_type="big"), pods_node("b", gpu_type="small")]
    jobs = [spec(1, 4, gpus=GpuRequest(min=1, max=4, types=(kind,))) for kind in ("big", "small") * 3]
    plan = planned(policy, *cluster, *(submitted(job, given) for job, given in enumerate(jobs, 1)))
    assert 1 <= gpus_started(plan) <= 4


@pytest.mark.parametrize(("what", "most"), [(Capped.PODS, 2), (Capped.CPUS, 6), (Capped.MEMORY, 2500)])
@pytest.mark.parametrize("policy", ["swell", "fifo", "elastic-fifo"])
def test_pods_cpus_and_memory_are_capped_as_well(policy: str, what: Capped, most: int) -> None:
    given = spec(1, 1, cpus=3, memory_mib=1200)
    plan = planned(policy, pods_node("a", cap(what, most)), *(submitted(job, given) for job in range(1, 5)))
    assert len(plan.starts) == 2
    assert {reasons[0].code for job, reasons in plan.explain().items() if job > 2} == {ReasonCode.NAMESPACE}


def test_a_job_takes_the_size_that_its_cap_leaves_cpus_for() -> None:
    plan = planned("swell", pods_node("a", cap(Capped.CPUS, 5)), submitted(1, spec(1, 4, cpus=2)))
    assert gpus_started(plan) == 2


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_job_beyond_its_cap_keeps_nothing_from_others(policy: str) -> None:
    cluster = [pods_node("a", cap(Capped.GPUS, 2)), pods_node("b")]
    plan = planned(policy, *cluster, submitted(1, spec(4, 4)), submitted(2, spec(2, 2)))
    assert [start.job for start in plan.starts] == [2]
    assert plan.explain()[1][0].detail["needs"] == 4


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_jobs_on_machines_and_in_other_namespaces_are_not_capped(policy: str) -> None:
    cluster = [pods_node("a", cap(Capped.GPUS, 1)), pods_node("b"), pods_node("m", executor="local")]
    jobs = [spec(2, 2), spec(4, 4, pods=False), spec(4, 4, namespace="other")]
    plan = planned(policy, *cluster, *(submitted(job, given) for job, given in enumerate(jobs, 1)))
    assert sorted(start.job for start in plan.starts) == [2, 3]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_what_a_cap_takes_back_serves_jobs_on_machines(policy: str) -> None:
    cluster = [pods_node("a", cap(Capped.GPUS, 1)), pods_node("m", executor="local")]
    jobs = [spec(1, 1), spec(1, 1), spec(1, 1), *(spec(1, 1, pods=False) for _ in range(4))]
    plan = planned(policy, *cluster, *(submitted(job, given) for job, given in enumerate(jobs, 1)))
    assert sorted(start.allocation.nodes[0] for start in plan.starts) == ["a", "m", "m", "m", "m"]


def test_a_job_on_its_way_out_still_counts() -> None:
    cluster = [pods_node("a", cap(Capped.GPUS, 2)), pods_node("b")]
    leaving = [*running(1, "a", (0, 1)), RunStopRequested(run=RunId(1, 1), why=StopWhy.PREEMPTED, at_s=100.0)]
    plan = planned("fifo", *cluster, submitted(1, spec(2, 2)), submitted(2, spec(2, 2, priority=10)), *leaving)
    assert not plan.starts
    assert plan.explain()[2][0].code is ReasonCode.FREEING


def test_running_jobs_are_not_stopped_for_one_that_would_grow() -> None:
    cluster = [pods_node("a", cap(Capped.GPUS, 4), gpu_type="big"), pods_node("b", gpu_type="small")]
    events = [submitted(1, spec(1, 4)), submitted(2, spec(1, 4))]
    plan = planned(
        "elastic-fifo", *cluster, *events, *running(1, "a", (0, 1), "big"), *running(2, "b", (0, 1), "small")
    )
    assert not plan.stops


def test_a_cap_that_was_lowered_stops_the_least_important_first() -> None:
    cluster = [pods_node("a", cap(Capped.GPUS, 2)), pods_node("b")]
    events = [submitted(1, spec(2, 2)), submitted(2, spec(2, 2, priority=10))]
    plan = planned("fifo", *cluster, *events, *running(1, "a", (0, 1)), *running(2, "b", (0, 1)))
    assert [stop.job for stop in plan.stops] == [1]


def test_a_namespace_that_takes_no_pods_of_ours_refuses_at_submit() -> None:
    refused = cap(Capped.PODS, 0, refused=True)
    nodes = [pods_node("a", refused).node, pods_node("b").node]
    with pytest.raises(Infeasible, match="ResourceQuota q"):
        check_feasible(spec(), nodes)
    check_feasible(spec(namespace="other"), nodes)
    assert not planned("swell", pods_node("a", refused), submitted(1, spec())).starts


def test_a_cap_outlives_the_node_that_reported_it() -> None:
    lost = pods_node("a", cap(Capped.GPUS, 1))
    closed = NodeObserved(node=Node(name="a", executor="kubernetes", closed="cordoned", caps=lost.node.caps), at_s=2.0)
    plan = planned("swell", lost, closed, pods_node("b"), *(submitted(job, spec()) for job in (1, 2)))
    assert gpus_started(plan) == 1
