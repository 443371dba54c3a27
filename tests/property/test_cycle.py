"""The whole brain on random lives: whatever happens, the laws hold after every event."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swell.core import events as ev
from swell.core.events import ExitReason
from swell.core.ids import RunId
from swell.core.invariants import stops_for_nothing, violations
from swell.core.job import GpuRequest, JobSpec, Preemptible
from swell.core.lifecycle import apply, replay
from swell.core.resources import Gpu, Node, NodeCondition
from swell.core.snapshot import Options
from swell.core.state import JobState, State
from swell.placement.registry import placer_named
from swell.plan.cycle import cycle
from swell.plan.deadlines import Patience, due
from swell.plan.enact import events_of
from swell.plan.snapshotter import Snapshotter
from swell.policy.registry import POLICIES, policy_named
from swell.speed.book import Book

SLOW = frozenset({"ffdl", "max-min", "sia"})
"""Exact solvers: fewer steps, or this would take minutes."""


class Life:
    """A random cluster with random arrivals, ends, losses and orders, driven by one policy."""

    def __init__(self, seed: int, policy: str) -> None:
        self.rng = random.Random(seed)
        self.policy = policy_named(policy)
        self.placer = placer_named("consolidated")
        self.state = State()
        self.book = Book()
        self.snapshotter = Snapshotter(self.book)
        self.events: list[ev.Event] = []
        self.now_s = 1000.0
        self.fitting = 0  # passes with all nodes ready and a job that fits each of them
        for i in range(self.rng.randint(1, 4)):
            gpus = tuple(Gpu(index=g, memory_mib=16_000) for g in range(self.rng.choice((1, 2, 4))))
            node = Node(name=f"n{i}", gpus=gpus, cpus=64, memory_mib=64_000)
            self.happen(ev.NodeObserved(node=node, at_s=self.now_s))

    def happen(self, event: ev.Event) -> None:
        apply(self.state, event)
        self.book.learn(event)
        self.events.append(event)
        assert violations(self.state) == []

    def step(self) -> None:
        self.now_s += self.rng.choice((0.1, 1.0, 15.0, 400.0))
        self.rng.choice((self.arrive, self.arrive, self.end, self.begin, self.epoch, self.agree, self.trouble))()
        for event in due(self.state, self.now_s, Patience(gang_timeout_s=1e9, resize_wait_s=500.0)).events:
            self.happen(event)
        self.decide()

    def arrive(self) -> None:
        low = self.rng.randint(0, 3)
        share = low == 1 and self.rng.random() < 0.3
        request = GpuRequest(
            min=low,
            max=0 if low == 0 else 1 if share else low + self.rng.randint(0, 3),
            share=share,
            memory_mib=4_000 if share else 0,
        )
        spec = JobSpec(
            name="j",
            command=("true",),
            gpus=request,
            uses_library=self.rng.random() < 0.8,
            preemptible=self.rng.choice(list(Preemptible)),
            priority=self.rng.choice((0, 0, 0, 10)),
            epochs=10,
            nodes=self.rng.choice(((), (), (), ("n0",))),
            team=self.rng.choice(("a", "b")),
        )
        self.happen(ev.JobSubmitted(job=self.state.last_job + 1, spec=spec, at_s=self.now_s))

    @property
    def could_start(self) -> bool:
        """A job came that fits the smallest node there is, and a node was ready at some pass after."""
        return self.fitting > 0

    def started(self) -> int:
        return sum(isinstance(event, ev.RunPlanned) for event in self.events)

    def _one(self, *states: JobState) -> RunId | None:
        found = [r for j in self.state.active if (r := self.state.jobs[j]).state in states]
        run = self.rng.choice(found).run if found else None
        return run.id if run else None

    def begin(self) -> None:
        if run := self._one(JobState.STARTING):
            self.happen(ev.RunStarted(run=run, at_s=self.now_s))
            self.happen(ev.TrainingBegan(run=run, at_s=self.now_s, epochs=10))

    def epoch(self) -> None:
        if run := self._one(JobState.RUNNING):
            record = self.state.jobs[run.job]
            gpus = record.allocation.gpus if record.allocation else 0
            epoch_s = self.rng.uniform(1, 50)
            done = record.epochs_done + 1
            self.happen(ev.EpochEnded(run=run, at_s=self.now_s, epoch=done, epoch_s=epoch_s, gpus=gpus))

    def agree(self) -> None:
        """The ranks of a stopping run, unless they find no place to stop."""
        if run := self._one(JobState.STOPPING):
            self.happen(ev.StopAgreed(run=run, epoch=self.state.jobs[run.job].epochs_done + 1, at_s=self.now_s))

    def end(self) -> None:
        if run := self._one(JobState.STOPPING):
            self.happen(ev.RunEnded(run=run, reason=ExitReason.STOPPED, at_s=self.now_s))
        elif run := self._one(JobState.RUNNING, JobState.STARTING):
            reason = self.rng.choice((ExitReason.FINISHED, ExitReason.USER_ERROR, ExitReason.SHIM_LOST))
            self.happen(ev.RunEnded(run=run, reason=reason, at_s=self.now_s))

    def trouble(self) -> None:
        node = self.rng.choice(sorted(self.state.nodes))
        condition = self.rng.choice((NodeCondition.READY, NodeCondition.READY, NodeCondition.CORDONED))
        self.happen(ev.NodeConditionChanged(node=node, condition=condition, at_s=self.now_s))

    def decide(self) -> None:
        snapshot, _ = self.snapshotter.take(self.state, self.now_s, Options())
        least = min(len(node.gpus) for node in self.state.nodes.values())
        ready = all(node.schedulable for node in self.state.nodes.values())
        self.fitting += ready and any(job.min <= least for job in snapshot.jobs)
        fresh, _ = Snapshotter(self.book).take(self.state, self.now_s, Options())
        assert snapshot == fresh, "a cached view differs from a fresh one"
        seed = self.state.seq
        plan = cycle(snapshot, self.policy, self.placer, self.state.policy_memory, random.Random(seed))
        again = cycle(snapshot, self.policy, self.placer, self.state.policy_memory, random.Random(seed))
        assert (plan, plan.explain()) == (again, again.explain()), "the same input gave another plan"
        policy, placer = policy_named(self.policy.name), placer_named(self.placer.name)
        anew = cycle(snapshot, policy, placer, self.state.policy_memory, random.Random(seed))
        changed = "what a policy or placer remembers from earlier passes changed the plan"
        assert (plan, plan.explain()) == (anew, anew.explain()), changed
        for job in snapshot.jobs:
            idle = job.id not in plan.targets and not job.held_n
            assert not idle or plan.explain().get(job.id), f"job {job.id} waits without a reason"
        for event in events_of(plan, self.state, self.now_s):
            self.happen(event)


@pytest.mark.parametrize("policy", sorted(POLICIES))
@given(seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_never_breaks_a_law_whatever_happens(policy: str, seed: int) -> None:
    life = Life(seed, policy)
    for _ in range(15 if policy in SLOW else 60):
        life.step()
    assert replay(life.events) == life.state
    assert stops_for_nothing(life.events) == []
    assert life.started() or not life.could_start, "jobs came that fit, and none was started"


@pytest.mark.slow
@pytest.mark.parametrize("policy", sorted(set(POLICIES) - SLOW))
@given(seed=st.integers(0, 2**32))
@settings(max_examples=int(os.environ.get("SWELL_EXAMPLES", "200")) // 100, deadline=None)
def test_never_breaks_a_law_in_many_longer_lives(policy: str, seed: int) -> None:
    life = Life(seed, policy)
    for _ in range(200):
        life.step()
    assert replay(life.events) == life.state
    assert stops_for_nothing(life.events) == []
    assert life.started()
