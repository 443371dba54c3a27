"""What 10,000 jobs on 1,000 nodes cost: CPU per pass, and per observation that one GPU's measured use has changed."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from figures import record
from swell.core import events as ev
from swell.core.events import Event
from swell.core.job import GpuRequest, JobSpec
from swell.core.lifecycle import apply
from swell.core.resources import Gpu, Node
from swell.core.snapshot import Options
from swell.core.state import State
from swell.placement.interference import WatchedBook
from swell.placement.registry import placer_named
from swell.plan.cycle import cycle
from swell.plan.enact import events_of
from swell.plan.snapshotter import Snapshotter
from swell.policy.registry import policy_named
from swell.sim.forecast import forecast
from swell.speed.book import Book

pytestmark = pytest.mark.perf
JOBS, NODES, GPUS = 10_000, 1_000, 4
TIMES = 15


class Brain:
    """State, book and what decides, as in the daemon: nothing is made twice that need not be."""

    def __init__(self) -> None:
        self.state, self.book = State(), WatchedBook(Book())
        self.policy, self.placer = policy_named("swell"), placer_named("consolidated")
        self.snapshotter = Snapshotter(self.book)
        self.now_s = 1000.0
        self._fill()

    def _fill(self) -> None:
        gpus = tuple(Gpu(index=i, type="A100", memory_mib=40_960) for i in range(GPUS))
        for number in range(NODES):
            node = Node(name=f"n{number:04d}", gpus=gpus, cpus=64, memory_mib=1 << 19)
            self.happens(ev.NodeObserved(node=node, at_s=0.0))
        self.happens(ev.PolicySet(name="swell", placer="consolidated", at_s=0.0, options={}))
        sizes = random.Random(1)
        for job in range(1, JOBS + 1):
            n = sizes.choice((1, 1, 2, 4))
            spec = JobSpec(name=f"f{job % 50}", command=(f"f{job % 50}",), gpus=GpuRequest(min=n, max=n))
            self.happens(ev.JobSubmitted(job=job, spec=spec, at_s=job / 100))

    def happens(self, event: Event) -> None:
        apply(self.state, event)
        self.book.learn(event)

    def decide(self) -> None:
        self.now_s += 1.0
        snapshot, _ = self.snapshotter.take(self.state, self.now_s, Options())
        rng = random.Random(self.state.seq)
        plan = cycle(snapshot, self.policy, self.placer, self.state.policy_memory, rng)
        for event in events_of(plan, self.state, self.now_s):
            self.happens(event)

    def observe(self) -> None:
        """Somebody else's process on one GPU uses some memory more."""
        node = self.state.nodes[f"n{int(self.now_s) % NODES:04d}"]
        used = replace(node.gpus[0], others_memory_mib=node.gpus[0].others_memory_mib + 1)
        self.happens(ev.NodeObserved(node=replace(node, gpus=(used, *node.gpus[1:])), at_s=self.now_s))


def cpu_ms(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return 1000 * (time.process_time() - began)


def test_passes_and_observations_of_a_large_cluster() -> None:
    brain = Brain()
    first = cpu_ms(brain.decide)
    brain.decide()
    passes = [cpu_ms(brain.decide) for _ in range(TIMES)]
    observed, after = [], []
    for _ in range(TIMES):
        observed.append(cpu_ms(brain.observe))
        after.append(cpu_ms(brain.decide))
    record(
        "scale",
        {
            "first_pass_cpu_ms_at_10000_jobs_1000_nodes": first,
            "pass_cpu_ms_at_10000_jobs_1000_nodes": statistics.median(passes),
            "observation_cpu_ms_at_10000_jobs_1000_nodes": statistics.median(observed),
            "pass_after_observation_cpu_ms_at_10000_jobs_1000_nodes": statistics.median(after),
        },
    )


def test_a_forecast_of_a_large_cluster() -> None:
    brain = Brain()
    brain.decide()
    began = time.process_time()
    found = forecast(brain.state, brain.book, brain.policy, brain.placer, Options(), brain.now_s, samples=1)
    took = time.process_time() - began
    ahead_s = (found.until_s or float("inf")) - brain.now_s
    assert len(found.intervals) >= len([job for job in brain.state.active if brain.state.jobs[job].holding])
    record(
        "scale",
        {
            "forecast_cpu_s_at_10000_jobs_1000_nodes": took,
            "forecast_hours_ahead_at_10000_jobs_1000_nodes": ahead_s / 3600,
            "forecast_jobs_at_10000_jobs_1000_nodes": len(found.intervals),
        },
    )
