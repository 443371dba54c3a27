"""Jobs that may use some nodes only never leave the others idle, whatever the policy."""

from __future__ import annotations

import random

import pytest

from swell.core.events import JobSubmitted, NodeObserved
from swell.core.job import JobSpec
from swell.core.lifecycle import replay
from swell.core.resources import Gpu, Node
from swell.core.snapshot import Options
from swell.placement.consolidated import Consolidated
from swell.plan.cycle import cycle
from swell.plan.snapshotter import Snapshotter
from swell.policy.registry import POLICIES, policy_named
from swell.speed.book import Book


def node(name: str, gpus: int, *, no_containers: str = "") -> NodeObserved:
    made = Node(
        name=name,
        gpus=tuple(Gpu(index=i) for i in range(gpus)),
        cpus=16,
        memory_mib=64_000,
        no_containers=no_containers,
    )
    return NodeObserved(node=made, at_s=1.0)


def submitted(job: int, *, nodes: tuple[str, ...] = (), image: str = "") -> JobSubmitted:
    return JobSubmitted(job=job, spec=JobSpec(name="j", command=("x",), nodes=nodes, image=image), at_s=1.0)


def started(policy: str, *events: NodeObserved | JobSubmitted) -> dict[int, str]:
    snapshot, _ = Snapshotter(Book()).take(replay(events), 2.0, Options())
    plan = cycle(snapshot, policy_named(policy), Consolidated(), {}, random.Random(0))
    why = plan.explain()
    assert all(why.get(job.id) for job in snapshot.jobs if job.id not in plan.targets)
    return {start.job: start.allocation.nodes[0] for start in plan.starts}


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_what_confined_jobs_cannot_use_goes_to_those_that_can(policy: str) -> None:
    cluster = [node("a", 1), node("b", 1), node("c", 1, no_containers="there is no podman or docker on it")]
    named = [submitted(job, nodes=("a",)) for job in range(1, 9)]
    contained = [submitted(job, nodes=("b", "c"), image="i") for job in range(9, 13)]
    found = started(policy, *cluster, *named, *contained, submitted(13), submitted(14))
    assert sorted(found.values()) == ["a", "b", "c"], "no GPU is idle while a job waits that could use it"


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_jobs_that_nothing_confines_are_decided_once(policy: str) -> None:
    """A job that waits for room on one node keeps its claim: smaller ones behind it are not let past by this."""
    cluster = [node("a", 1), node("b", 1)]
    assert len(started(policy, *cluster, *map(submitted, range(1, 6)))) == 2
