"""When a simulation looks again, and that it ends although some job never starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from swell.core.decision import Decision, Grant
from swell.core.events import NodeConditionChanged
from swell.core.job import GpuRequest, JobSpec
from swell.core.resources import NodeCondition
from swell.core.snapshot import Snapshot
from swell.core.state import JobState
from swell.placement.registry import placer_named
from swell.ports import Random
from swell.sim import engine
from swell.sim.cluster import parse_cluster
from swell.sim.duration_world import Durations, TrueDurations
from swell.sim.engine import Setup, Simulation
from swell.sim.workload import Arrival, Workload
from unit.policy.views import Inelastic

MOST = 5
"""Quiet rounds that are waited for; a simulation that does not end looks many times as often."""
JOB = JobSpec(name="j", command=("x",), gpus=GpuRequest(min=1, max=1), uses_library=True)


class Hesitant(Inelastic):
    """Grants a GPU at its look of this number, and keeps what runs."""

    def __init__(self, at_look: int) -> None:
        self.looks, self.at_look = 0, at_look

    def decide(self, snapshot: Snapshot, memory: Mapping[str, object], rng: Random) -> Decision:
        self.looks += 1
        jobs = snapshot.jobs if self.looks >= self.at_look else [job for job in snapshot.jobs if job.held_n]
        return Decision(grants={job.id: Grant(n=1, gpu_type="gpu") for job in jobs})


class Scene:
    def __init__(self, policy: Hesitant, **changes: object) -> None:
        world = Durations(restart_s=0.0)
        setup = Setup(nodes=parse_cluster("1x1"), policy=policy, placer=placer_named("consolidated"), interval_s=60.0)
        self.simulation = Simulation(replace(setup, **changes), world, TrueDurations(world))  # type: ignore[arg-type]
        self.looked_s: list[float] = []
        self.simulation.on_pass = self.looked

    def looked(self, now_s: float) -> None:
        self.looked_s.append(now_s)
        assert len(self.looked_s) < 10 * MOST, "it does not end"

    def run(self, *at_s: float, lasts_s: float = 100.0) -> list[JobState]:
        arrivals = tuple(Arrival(at_s=s, spec=JOB, truth={"duration_s": lasts_s}) for s in at_s)
        state = self.simulation.run(Workload(name="w", arrivals=arrivals))
        return [state.jobs[job].state for job in sorted(state.jobs)]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MAX_IDLE", MOST)


def test_a_job_that_no_round_starts_is_given_up_after_so_many_quiet_ones() -> None:
    scene = Scene(Hesitant(at_look=1000))
    assert scene.run(0.0) == [JobState.QUEUED]
    assert scene.looked_s == [60.0 * i for i in range(MOST)]


def test_a_round_before_which_nothing_happened_may_start_a_job() -> None:
    scene = Scene(Hesitant(at_look=3))
    assert scene.run(10.0) == [JobState.COMPLETED]
    assert scene.looked_s[:3] == [60.0, 120.0, 180.0]


def test_rounds_count_as_quiet_only_while_nothing_is_expected() -> None:
    scene = Scene(Hesitant(at_look=1000))
    coming_s = 60.0 * 2 * MOST
    assert scene.run(0.0, coming_s) == [JobState.QUEUED] * 2
    assert scene.looked_s == [60.0 * i for i in range(3 * MOST)]


def test_without_quiet_rounds_only_what_happens_makes_it_look() -> None:
    scene = Scene(Hesitant(at_look=1000), quiet_rounds=False)
    assert scene.run(10.0, 130.0) == [JobState.QUEUED] * 2
    assert scene.looked_s == [60.0, 180.0]


def test_without_rounds_it_looks_at_each_event() -> None:
    scene = Scene(Hesitant(at_look=1), interval_s=0.0)
    assert scene.run(10.0, 20.0) == [JobState.COMPLETED] * 2
    assert scene.looked_s == [10.0, 20.0, 110.0, 210.0]


def test_and_at_each_node_that_is_closed_or_comes_back() -> None:
    scene = Scene(Hesitant(at_look=1), interval_s=0.0)
    (name,) = scene.simulation.state.nodes
    changes = ((20.0, NodeCondition.CORDONED), (500.0, NodeCondition.READY))
    scene.simulation.expect(NodeConditionChanged(node=name, condition=to, at_s=at_s) for at_s, to in changes)
    assert scene.run(10.0, 30.0) == [JobState.COMPLETED] * 2
    assert scene.looked_s == [10.0, 20.0, 30.0, 110.0, 500.0, 600.0]
