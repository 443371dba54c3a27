"""The simulator pays exactly the restart cost it was told, and measures exactly that: nothing of an epoch that went on
is counted as lost when all ranks agreed on a step inside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from swell.core.events import Event, TrainingBegan
from swell.core.state import State
from swell.placement.registry import placer_named
from swell.policy.registry import policy_named
from swell.sim.clairvoyant import ClairvoyantBook
from swell.sim.cluster import parse_cluster
from swell.sim.engine import Setup, Simulation
from swell.sim.pollux_workloads import read_pollux
from swell.sim.profiles import applications
from swell.sim.training_world import Training


def test_the_measured_restart_cost_is_the_true_one(ten_jobs: Path, profiles: Path) -> None:
    measured: list[float] = []

    def watch(state: State, event: Event) -> None:
        if isinstance(event, TrainingBegan) and event.run.attempt > 1:
            cost = state.jobs[event.run.job].restart_cost_s
            assert cost is not None
            measured.append(cost)

    apps = applications(profiles)
    world = Training(apps, restart_s=25.0, per_node={"gpu": 4})
    setup = Setup(
        nodes=parse_cluster("2x4"),
        policy=policy_named("elastic-fifo"),
        placer=placer_named("consolidated"),
        interval_s=60.0,
    )
    workload = read_pollux(ten_jobs, apps, adaptive=False, gpus={"gpu": 8})
    Simulation(setup, world, ClairvoyantBook(world, {"gpu": 4}), (watch,)).run(workload)
    assert measured
    assert measured == pytest.approx([25.0] * len(measured))
