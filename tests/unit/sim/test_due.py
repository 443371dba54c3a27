"""A simulation and a forecast keep to time limits, and to what jobs wait for, as the daemon does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.core.events import Event, RunEnded
from swell.core.ids import JobId
from swell.core.job import GpuRequest, JobSpec
from swell.core.snapshot import Options
from swell.core.state import JobState, State
from swell.placement.registry import placer_named
from swell.policy.registry import policy_named
from swell.sim.cluster import parse_cluster
from swell.sim.duration_world import Durations, TrueDurations
from swell.sim.engine import Setup, Simulation
from swell.sim.forecast import forecast
from swell.sim.workload import Arrival, Workload

JOB = JobSpec(name="j", command=("x",), gpus=GpuRequest(min=1, max=1))
LASTS_S, LIMIT_S = 1000.0, 100.0


def run(*arrivals: Arrival, until_s: float = float("inf")) -> tuple[State, TrueDurations, dict[JobId, float]]:
    """The state, what is known of its jobs, and when each ended."""
    ends: dict[JobId, float] = {}

    def watch(_: State, event: Event) -> None:
        if isinstance(event, RunEnded):
            ends[event.run.job] = event.at_s

    world = Durations(restart_s=0.0)
    policy, placer = policy_named("fifo"), placer_named("consolidated")
    setup = Setup(nodes=parse_cluster("1x1"), policy=policy, placer=placer, until_s=until_s)
    book = TrueDurations(world)
    state = Simulation(setup, world, book, (watch,)).run(Workload(name="w", arrivals=arrivals))
    return state, book, ends


def arrival(at_s: float, spec: JobSpec = JOB, **truth: float) -> Arrival:
    return Arrival(at_s=at_s, spec=spec, truth={"duration_s": LASTS_S, **truth})


def test_a_run_ends_at_its_time_limit_and_the_next_begins() -> None:
    limited = replace(JOB, time_limit_s=LIMIT_S)
    state, _, ends = run(arrival(5.0, limited), arrival(6.0))
    assert ends == {1: pytest.approx(5.0 + LIMIT_S), 2: pytest.approx(5.0 + LIMIT_S + LASTS_S)}
    assert state.jobs[1].state is not JobState.COMPLETED
    assert state.jobs[2].state is JobState.COMPLETED


def test_one_that_ends_before_it_completes() -> None:
    state, _, ends = run(arrival(5.0, replace(JOB, time_limit_s=LASTS_S + 1.0)))
    assert ends == {1: pytest.approx(5.0 + LASTS_S)}
    assert state.jobs[1].state is JobState.COMPLETED


@pytest.mark.parametrize(
    ("fails", "wants", "state"),
    [
        (0.0, {"depends_on": (1,)}, JobState.COMPLETED),
        (1.0, {"depends_on": (1,)}, JobState.CANCELLED),
        (0.0, {"after_failure": (1,)}, JobState.CANCELLED),
        (1.0, {"after_failure": (1,)}, JobState.COMPLETED),
        (1.0, {"after_any": (1,)}, JobState.COMPLETED),
    ],
)
def test_a_job_that_waits_for_another_starts_after_it_or_is_given_up(
    fails: float, wants: dict[str, tuple[int, ...]], state: JobState
) -> None:
    found, _, ends = run(arrival(0.0, fails=fails), arrival(1.0, replace(JOB, **wants)))  # type: ignore[arg-type]
    assert found.jobs[2].state is state
    assert ends.get(2) == (pytest.approx(2 * LASTS_S) if state is JobState.COMPLETED else None)


@pytest.mark.parametrize(("limit_s", "end_s"), [(LIMIT_S, LIMIT_S), (0.0, LASTS_S)])
def test_a_time_limit_is_foreseen(limit_s: float, end_s: float) -> None:
    state, book, _ = run(arrival(0.0, replace(JOB, time_limit_s=limit_s)), arrival(1.0), until_s=10.0)
    found = forecast(state, book, policy_named("fifo"), placer_named("consolidated"), Options(), 10.0, samples=1)
    assert found.intervals[1].end_mid_s == pytest.approx(end_s, abs=1.0)
    assert found.intervals[2].start_mid_s == pytest.approx(end_s, abs=1.0)
