"""A job that is one process is never granted more GPUs than one node has."""

from __future__ import annotations

import random

from swell.core.events import JobSubmitted, NodeObserved
from swell.core.job import GpuRequest, JobSpec, Launcher
from swell.core.lifecycle import replay
from swell.core.snapshot import Options
from swell.placement.consolidated import Consolidated
from swell.plan.cycle import cycle
from swell.plan.snapshotter import Frame, Snapshotter, on_one_node
from swell.policy.elastic_fifo import ElasticFifo
from swell.speed.book import Book
from unit.placement.build import nodes


def test_one_process_grows_to_a_node_and_the_rest_goes_to_others() -> None:
    def spec(name: str, launcher: Launcher) -> JobSpec:
        return JobSpec(name=name, command=("x",), gpus=GpuRequest(min=1, max=8), launcher=launcher, uses_library=True)

    seen = [NodeObserved(node=n, at_s=0.0) for n in nodes(4, 4)]
    alone = JobSubmitted(job=1, spec=spec("alone", Launcher.SINGLE), at_s=1.0)
    wide = JobSubmitted(job=2, spec=spec("wide", Launcher.PER_GPU), at_s=2.0)
    state = replay([*seen, alone, wide])
    snapshot, _ = Snapshotter(Book()).take(state, 10.0, Options())
    plan = cycle(snapshot, ElasticFifo(), Consolidated(), {}, random.Random(0))
    assert {start.job: start.allocation.gpus for start in plan.starts} == {1: 4, 2: 4}


def test_sizes_beyond_the_largest_node_are_dropped_unless_none_is_left() -> None:
    job = Frame(team="", sizes=(2, 4, 8), requested=8, gpu_types=("gpu",), whole=True)
    assert on_one_node(job, {"gpu": 4}).sizes == (2, 4)
    assert on_one_node(job, {"gpu": 4}).requested == 4
    assert on_one_node(job, {"gpu": 1}) is job
    assert on_one_node(job, {"gpu": 8}) is job
