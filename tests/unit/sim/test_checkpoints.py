"""Simulated jobs that save only now and then: what a stop waits for, and what it loses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from swell.core.events import Event, RunEnded, RunStopRequested, StopWhy
from swell.core.job import GpuRequest, JobSpec
from swell.core.state import State
from swell.placement.registry import placer_named
from swell.plan.deadlines import Patience
from swell.policy.registry import policy_named
from swell.sim.checkpoints import Checkpoints
from swell.sim.cluster import parse_cluster
from swell.sim.duration_world import Durations, TrueDurations
from swell.sim.engine import Setup, Simulation
from swell.sim.simulate import Case, simulate
from swell.sim.workload import Arrival, Workload

MINUTE_S = 60.0
RESTART_S = 30.0


def job(at_s: float, duration_s: float, *, most: int = 1, priority: int = 0) -> Arrival:
    gpus = GpuRequest(min=1, max=most)
    spec = JobSpec(name="j", command=("x",), gpus=gpus, uses_library=True, priority=priority)
    return Arrival(at_s=at_s, spec=spec, truth={"duration_s": duration_s, "loss": 0.0})


def run(
    arrivals: list[Arrival], gpus: int, every_s: float, *, charged: bool = True, patience: Patience | None = None
) -> tuple[State, list[Event]]:
    events: list[Event] = []
    checkpoints = Checkpoints(every_s=every_s, patience=patience or Patience())
    world = Durations(restart_s=RESTART_S, checkpoints=checkpoints)
    setup = Setup(
        nodes=parse_cluster(f"1x{gpus}"),
        policy=policy_named("elastic-srjf"),
        placer=placer_named("consolidated"),
        charge_unsaved=charged,
        interval_s=MINUTE_S,
    )
    simulation = Simulation(setup, world, TrueDurations(world), (lambda _, event: events.append(event),))
    return simulation.run(Workload(name="w", arrivals=tuple(arrivals))), events


def stops(events: list[Event]) -> list[tuple[StopWhy, float, float]]:
    """Why, when asked, and when the run had left."""
    asked = {event.run: event for event in events if isinstance(event, RunStopRequested)}
    ends = {event.run: event.at_s for event in events if isinstance(event, RunEnded)}
    return [(event.why, event.at_s, ends[run]) for run, event in asked.items()]


URGENT = [job(0.0, 7200.0), job(10 * MINUTE_S, 120.0, priority=5)]
"""The second one takes the GPU of the first."""


def test_a_preemption_waits_for_a_checkpoint_that_it_can_foresee() -> None:
    later = [URGENT[0], job(45 * MINUTE_S, 120.0, priority=5)]
    state, events = run(later, 1, 30 * MINUTE_S)
    assert stops(events) == [(StopWhy.PREEMPTED, 45 * MINUTE_S, RESTART_S + 60 * MINUTE_S)]
    assert state.lost_s == 0.0
    assert state.jobs[1].ended_s == pytest.approx(7200.0 + 120.0 + 3 * RESTART_S, abs=MINUTE_S)


def test_a_preemption_that_cannot_foresee_one_loses_what_was_not_saved() -> None:
    state, events = run(URGENT, 1, 60 * MINUTE_S)
    (why, asked_s, left_s), *none = stops(events)
    assert (why, asked_s, none) == (StopWhy.PREEMPTED, 600.0, [])
    assert asked_s < left_s < 60 * MINUTE_S, "killed before it came to a checkpoint"
    assert state.lost_s == left_s - RESTART_S
    assert state.jobs[1].ended_s == pytest.approx(left_s + 120.0 + 7200.0 + 2 * RESTART_S, abs=2 * MINUTE_S)


def test_where_runs_save_wherever_they_are_asked_to_a_stop_is_at_once() -> None:
    state, events = run(URGENT, 1, 0.0)
    assert stops(events) == [(StopWhy.PREEMPTED, 600.0, 600.0)]
    assert state.lost_s == 0.0


def test_growth_is_asked_for_once_it_saves_more_than_the_restart_and_the_wait() -> None:
    """Two jobs on two GPUs; when the short one is over, the other one takes its GPU at its next checkpoint."""
    arrivals = [job(0.0, 5000.0, most=2), job(0.0, 31 * MINUTE_S)]
    _, not_charged = run(arrivals, 2, 30 * MINUTE_S, charged=False)
    _, charged = run(arrivals, 2, 30 * MINUTE_S)
    boundary_s = RESTART_S + 60 * MINUTE_S
    assert stops(not_charged) == [(StopWhy.RESIZING, 32 * MINUTE_S, boundary_s)]
    ((why, asked_s, left_s),) = stops(charged)
    assert (why, left_s) == (StopWhy.RESIZING, boundary_s)
    # at 2340 s it has 2690 s left and would save half of that; the restart and the wait are 30 + 1290 s
    assert asked_s == 2340.0


@pytest.mark.parametrize("clairvoyant", [True, False])
@pytest.mark.parametrize("policy", ["swell", "elastic-fifo"])
def test_every_measured_job_ends_with_checkpoints_now_and_then(
    ten_jobs: Path, profiles: Path, policy: str, clairvoyant: bool
) -> None:
    one = Case(workload=ten_jobs, profiles=profiles, cluster="2x4", policy=policy, clairvoyant=clairvoyant)
    for every_s in (45.0, 300.0):
        outcome = simulate(replace(one, checkpoint_every_s=every_s))
        assert [row.state for row in outcome.rows] == ["completed"] * 10
        assert sum(row.lost_gpu_s for row in outcome.rows) == pytest.approx(
            3600.0 * float(str(outcome.summary["lost_gpu_hours"])), abs=1.0
        )
