"""The book that knows how long jobs of a trace take: what it says stays true, so it need not be said again."""

from __future__ import annotations

import pytest

from swell.core.events import EpochEnded, Event
from swell.core.job import GpuRequest, JobSpec
from swell.core.state import State
from swell.placement.registry import placer_named
from swell.policy.registry import policy_named
from swell.sim.cluster import parse_cluster
from swell.sim.duration_world import Durations, Scaling, TrueDurations
from swell.sim.engine import Setup, Simulation
from swell.sim.noise import Noise
from swell.sim.workload import Arrival, Workload

HOURS_S = 4 * 3600.0


def said(noise: Noise) -> list[tuple[EpochEnded, float, float, int]]:
    """At the end of each epoch: what is left by what was last said, what really is, and the object that says it."""
    world = Durations(noise=noise)
    book = TrueDurations(world)
    found: list[tuple[EpochEnded, float, float, int]] = []
    kept = []  # so that no two have the same id

    def watch(state: State, event: Event) -> None:
        if isinstance(event, EpochEnded):
            job = state.jobs[event.run.job]
            remaining, task = book.remaining(job), world.tasks[job.id]
            kept.append(remaining)
            rate = task.scaling.rate(2, 1, "gpu")
            left_s = remaining.at_speed_1_s - rate * (event.at_s - remaining.as_of_s)
            found.append((event, left_s, task.at(event.at_s), id(remaining)))

    setup = Setup(nodes=parse_cluster("1x2"), policy=policy_named("fifo"), placer=placer_named("consolidated"))
    spec = JobSpec(name="j", command=("x",), gpus=GpuRequest(min=2, max=2), uses_library=True)
    workload = Workload(name="w", arrivals=(Arrival(at_s=0.0, spec=spec, truth={"duration_s": HOURS_S}),))
    Simulation(setup, world, book, (watch,)).run(workload)
    return found


def test_what_was_said_of_a_job_that_gets_on_as_foretold_stays_true() -> None:
    reports = said(Noise())
    assert len(reports) == 10
    assert len({which for *_, which in reports}) <= 5  # by halves
    for _, by_word_s, truly_s, _ in reports[:-1]:
        assert by_word_s == pytest.approx(truly_s)


def test_of_a_slow_run_it_is_said_anew_with_each_report() -> None:
    reports = said(Noise(straggler=1.0, slowdown=0.5))
    assert len({which for *_, which in reports}) == len(reports)


def test_a_silent_job_ends_when_its_work_is_done_and_reports_nothing_before() -> None:
    world, heard = Durations(), list[Event]()
    setup = Setup(nodes=parse_cluster("1x2"), policy=policy_named("swell"), placer=placer_named("consolidated"))
    spec = JobSpec(name="j", command=("x",), gpus=GpuRequest(min=2, max=2), uses_library=True)
    truth = {"duration_s": HOURS_S, "silent": 1.0}
    workload = Workload(name="w", arrivals=(Arrival(at_s=0.0, spec=spec, truth=truth),))
    state = Simulation(setup, world, TrueDurations(world), (lambda _, event: heard.append(event),)).run(workload)
    assert not any(isinstance(event, EpochEnded) for event in heard)
    assert state.jobs[1].ended_s == pytest.approx(HOURS_S + 30.0)


def test_nothing_is_left_of_a_job_whose_last_epoch_has_ended() -> None:
    world = Durations(noise=Noise(straggler=1.0, slowdown=0.5))
    setup = Setup(nodes=parse_cluster("1x2"), policy=policy_named("fifo"), placer=placer_named("consolidated"))
    spec = JobSpec(name="j", command=("x",), gpus=GpuRequest(min=2, max=2), uses_library=True)
    workload = Workload(name="w", arrivals=(Arrival(at_s=0.0, spec=spec, truth={"duration_s": HOURS_S}),))
    state = Simulation(setup, world, TrueDurations(world)).run(workload)
    task = world.tasks[1]
    assert (task.left_s, task.done_epochs()) == (0.0, task.epochs)
    assert state.jobs[1].epochs_done == task.epochs


def test_each_further_gpu_and_each_further_node_costs_its_part() -> None:
    scaling = Scaling(6, loss=0.5, node_loss=0.25, per_node=2)
    assert scaling.rate(1, 1, "any") == 1.0
    assert scaling.rate(2, 1, "any") == pytest.approx(2 / 1.5)
    assert scaling.rate(2, 2, "any") == pytest.approx(2 / 1.75)
    assert scaling.rate(6, 3, "any") == pytest.approx(6 / (1 + 5 * 0.5 + 2 * 0.25))
    assert scaling.rate(0, 1, "any") == 1.0, "a job without GPUs is as fast as it is"


def test_a_curve_is_of_as_few_nodes_as_hold_so_many_and_never_falls() -> None:
    scaling = Scaling(5, loss=0.0, node_loss=2.0, per_node=2)
    two, four, five = 2.0, 4 / (1 + 2.0), 5 / (1 + 4.0)
    assert max(four, five) < two
    assert scaling.curve("any") == (0.0, 1.0, two, two, two, two)
    assert Scaling(4, loss=0.5, node_loss=0.0, per_node=2).curve("any") == pytest.approx(
        (0.0, 1.0, 2 / 1.5, 3 / 2.0, 4 / 2.5)
    )
