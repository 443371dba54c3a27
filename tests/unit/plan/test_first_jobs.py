"""The first jobs of a newcomer, through the whole brain, with every policy."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from swell.core import events as ev
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec
from swell.core.lifecycle import apply
from swell.core.resources import Gpu, Node
from swell.core.snapshot import Options
from swell.core.state import JobState, State
from swell.placement.registry import placer_named
from swell.plan.cycle import cycle
from swell.plan.enact import events_of
from swell.plan.snapshotter import Snapshotter
from swell.policy.registry import POLICIES, policy_named
from swell.speed.book import Book

PLAIN = JobSpec(name="train", command=("python", "train.py"), gpus=GpuRequest(min=1, max=4))


class Cluster:
    """Four slots, a few CPUs more, and one policy."""

    def __init__(self, policy: str) -> None:
        self.policy = policy_named(policy)
        self.state, self.book, self.now_s = State(), Book(), 100.0
        self.snapshotter = Snapshotter(self.book)
        slots = tuple(Gpu(index=index, type="slot") for index in range(4))
        self.happen(ev.NodeObserved(node=Node(name="n", gpus=slots, cpus=6, memory_mib=8000), at_s=0.0))

    def happen(self, event: ev.Event) -> None:
        apply(self.state, event)
        self.book.learn(event)

    def submit(self, spec: JobSpec) -> int:
        job = self.state.last_job + 1
        self.happen(ev.JobSubmitted(job=job, spec=spec, at_s=self.now_s))
        self.decide()
        return job

    def decide(self) -> None:
        self.now_s += 60.0
        snapshot, _ = self.snapshotter.take(self.state, self.now_s, Options())
        plan = cycle(snapshot, self.policy, placer_named("consolidated"), self.state.policy_memory, random.Random(0))
        for event in events_of(plan, self.state, self.now_s):
            self.happen(event)
        for job in list(self.state.active):
            record = self.state.jobs[job]
            if record.state is JobState.STARTING and record.run is not None:
                self.happen(ev.RunStarted(run=record.run.id, at_s=self.now_s))

    def held(self, job: int) -> int:
        allocation = self.state.jobs[job].allocation
        return allocation.gpus if allocation else 0


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_plain_script_gets_its_first_size_and_leaves_room_for_the_next_job(policy: str) -> None:
    cluster = Cluster(policy)
    train, start = cluster.submit(PLAIN), cluster.submit(replace(PLAIN, gpus=GpuRequest(min=1, max=4, start=2)))
    urgent = cluster.submit(replace(PLAIN, gpus=GpuRequest(), priority=10))
    assert [cluster.held(job) for job in (train, start, urgent)] == [1, 2, 1]


def test_once_it_calls_the_library_it_grows() -> None:
    cluster = Cluster("swell")
    job = cluster.submit(PLAIN)
    assert cluster.held(job) == 1
    cluster.happen(ev.TrainingBegan(run=RunId(job, 1), at_s=cluster.now_s, epochs=1000))
    cluster.decide()
    assert cluster.state.jobs[job].state is JobState.STOPPING, "to be started again with more"


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_job_without_gpus_does_not_wait_behind_jobs_that_have_all_of_them(policy: str) -> None:
    cluster = Cluster(policy)
    for _ in range(6):
        cluster.submit(replace(PLAIN, gpus=GpuRequest()))
    light = cluster.submit(replace(PLAIN, gpus=GpuRequest(min=0, max=0), priority=-10))
    assert cluster.state.jobs[light].state is JobState.RUNNING
