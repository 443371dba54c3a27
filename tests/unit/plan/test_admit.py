"""Never is said at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swell.core.errors import Infeasible
from swell.core.job import GpuRequest, JobSpec, Launcher, Mount, PodOptions, Preemptible
from swell.core.resources import Gpu, Node, NodeCondition
from swell.plan.admit import at_once, check_feasible, deadline_note, elasticity_note

A100 = tuple(Gpu(index=i, type="A100", memory_mib=40_000) for i in range(4))
T4 = tuple(Gpu(index=i, type="T4", memory_mib=16_000) for i in range(2))
NODES = (
    Node(name="a", gpus=A100, cpus=32, memory_mib=100_000, labels={"zone": "x"}),
    Node(
        name="b",
        gpus=T4,
        cpus=8,
        memory_mib=10_000,
        condition=NodeCondition.CORDONED,
        no_containers="there is no podman or docker on it",
    ),
)


def spec(gpus: GpuRequest | None = None, **changes: object) -> JobSpec:
    return JobSpec(name="j", command=("true",), gpus=gpus or GpuRequest(), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "job",
    [
        spec(GpuRequest(min=4, max=4)),
        spec(GpuRequest(min=2, max=64)),
        spec(GpuRequest(min=0, max=0)),
        spec(GpuRequest(types=("T4",))),  # cordoned nodes may come back
        spec(GpuRequest(memory_mib=40_000)),
        spec(GpuRequest(share=True, memory_mib=10_000)),
        spec(node_labels={"zone": "x"}),
        spec(cpus=32),
    ],
)
def test_what_some_node_could_hold_is_admitted(job: JobSpec) -> None:
    check_feasible(job, NODES)


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (spec(GpuRequest(min=5, max=5)), "5 GPUs in one process and the largest node has 4"),
        (spec(GpuRequest(min=5, max=5), launcher=Launcher.PER_GPU), "at least 5 GPUs of one type and there are 4"),
        (spec(GpuRequest(min=3, max=3, types=("T4",))), "3 GPUs in one process and the largest node has 2"),
        (spec(GpuRequest(types=("H100",))), "there are: A100, T4"),
        (spec(GpuRequest(exclude=("A100", "T4"))), "there are: A100, T4"),
        (spec(GpuRequest(memory_mib=50_000)), "50000 MiB of memory on a GPU, the largest GPU it may use has 40000"),
        (spec(cpus=33), "33 CPUs, the largest node has 32"),
        (spec(memory_mib=200_000), "200000 MiB of memory"),
        (spec(node_labels={"zone": "y"}), "no node has the labels zone=y"),
        (spec(nodes=("x", "y")), "there is no node called x or y; there are: a, b"),
        (spec(nodes=("b",), node_labels={"zone": "x"}), "no node of those it names has the labels zone=x"),
        (spec(nodes=("b",), image="busybox"), "no node that it may use runs containers .b: there is no podman"),
        (spec(GpuRequest(min=3, max=3), nodes=("b",)), "the largest node has 2"),
    ],
)
def test_what_no_node_could_ever_hold_is_refused_with_the_numbers(job: JobSpec, says: str) -> None:
    with pytest.raises(Infeasible, match=says):
        check_feasible(job, NODES)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("mounts", (Mount(source="/data", target="/data"),), "mounts need an image"),
        ("ports", {"8080": "80"}, "write 80:80"),
    ],
)
@pytest.mark.parametrize("nodes", [NODES, ()])
def test_what_needs_a_container_is_refused_without_an_image_and_never_runs_bare(
    field: str, value: object, says: str, nodes: tuple[Node, ...]
) -> None:
    with pytest.raises(Infeasible, match=says):
        check_feasible(replace(spec(), **{field: value}), nodes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (spec(GpuRequest(min=4, max=4), launcher=Launcher.PER_GPU, cpus=20), "processes on 1;"),
        (spec(GpuRequest(min=2, max=2), launcher=Launcher.PS, cpus=16, node_labels={"zone": "x"}), "processes on 1;"),
        (spec(GpuRequest(share=True), memory_mib=60_000, cpus=8, node_labels={}, launcher=Launcher.PS), "16 CPUs and"),
    ],
)
def test_a_job_whose_processes_fit_nowhere_together_is_refused(job: JobSpec, says: str) -> None:
    with pytest.raises(Infeasible, match=says):
        check_feasible(job, NODES)


def test_a_node_with_more_gpus_than_cpus_has_a_cpu_for_each() -> None:
    check_feasible(spec(GpuRequest(min=4, max=4), cpus=4), [Node(name="a", gpus=A100, cpus=1, memory_mib=1000)])


def test_without_a_gpu_anywhere_the_message_says_how_to_try_swell() -> None:
    with pytest.raises(Infeasible, match="swell up --gpus N"):
        check_feasible(spec(), (Node(name="a"),))


def test_nothing_is_refused_before_the_first_node_is_known() -> None:
    check_feasible(spec(GpuRequest(min=100, max=100)), ())


def test_what_elasticity_needs_is_said_at_submit() -> None:
    plain = JobSpec(name="j", command=("x",), gpus=GpuRequest(min=1, max=4))
    said = elasticity_note(plain)
    assert said.startswith("it keeps 1 GPU until it ends unless it calls the swell library")
    assert "uses_library or checkpoint_dir" in said
    assert "keeps 2 GPUs" in elasticity_note(replace(plain, gpus=GpuRequest(min=1, max=4, start=2)))
    never = replace(plain, preemptible=Preemptible.NEVER, uses_library=True)
    assert elasticity_note(never) == "it keeps 1 GPU until it ends, because it says preemptible: never"


@pytest.mark.parametrize(
    "more",
    [
        {"uses_library": True},
        {"checkpoint_dir": "c"},
        {"preemptible": Preemptible.RESTART},
        {"launcher": Launcher.HOROVOD},
        {"gpus": GpuRequest(min=2, max=2)},
    ],
)
def test_nothing_is_said_of_jobs_that_are_resized_or_never_asked_for_it(more: dict[str, Any]) -> None:
    assert elasticity_note(replace(JobSpec(name="j", command=("x",), gpus=GpuRequest(min=1, max=4)), **more)) == ""


def test_a_job_that_says_kubernetes_runs_on_nodes_of_a_cluster_and_others_never_do() -> None:
    cluster = tuple(replace(node, executor="kubernetes") for node in NODES)
    pods = replace(spec(), image="train:1", kubernetes=PodOptions())
    check_feasible(pods, cluster)
    check_feasible(pods, (*cluster, *NODES))
    with pytest.raises(Infeasible, match=r"add `kubernetes: {}` and an `image:`"):
        check_feasible(replace(spec(), image="train:1"), cluster)
    with pytest.raises(Infeasible, match="no node of a Kubernetes cluster"):
        check_feasible(pods, NODES)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image": ""}, "a pod needs an image"),
        ({"gpus": GpuRequest(share=True)}, "pods cannot share a GPU"),
        ({"ports": {"80": "80"}}, "pods have no `mounts:` or `ports:`"),
    ],
)
def test_what_no_pod_can_be_is_refused_with_what_to_do(change: dict[str, Any], words: str) -> None:
    pods = replace(spec(), image="train:1", kubernetes=PodOptions())
    with pytest.raises(Infeasible, match=words):
        check_feasible(replace(pods, **change), ())


@pytest.mark.parametrize(
    ("job", "count"),
    [
        (spec(), 4),
        (spec(GpuRequest(min=2, max=4)), 2),
        (spec(GpuRequest(min=0, max=0)), 32),
        (spec(cpus=10), 3),
        (spec(cpus=0, memory_mib=60_000), 1),
        (spec(GpuRequest(share=True, memory_mib=10_000)), 16),
        (spec(GpuRequest(share=True, utilisation_milli=400)), 8),
        (spec(GpuRequest(share=True)), 4),
        (spec(GpuRequest(memory_mib=50_000)), 0),
        (spec(node_labels={"zone": "y"}), 0),
        (spec(nodes=("a", "c")), 4),
        (spec(nodes=("b",)), 0),
    ],
)
def test_how_many_such_jobs_a_node_runs_at_once(job: JobSpec, count: int) -> None:
    assert at_once(job, NODES[0]) == count
    assert at_once(job, NODES[1]) == 0  # cordoned: nothing new starts there


@pytest.mark.parametrize(("deadline_s", "noted"), [(0.0, False), (99.0, True), (100.0, True), (101.0, False)])
def test_a_deadline_that_is_past_is_noted(deadline_s: float, noted: bool) -> None:
    note = deadline_note(JobSpec(name="j", command=("x",), deadline_s=deadline_s), now_s=100.0)
    assert note == ("its deadline is past: nothing can be done to meet it" if noted else "")
