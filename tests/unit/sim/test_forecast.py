"""Forecasts against what then happens in the same world."""

from __future__ import annotations

import importlib
from dataclasses import replace
from statistics import median
from typing import Any

import pytest

from swell.core.events import Event, JobPaused, RunEnded
from swell.core.job import GpuRequest, JobSpec
from swell.core.lifecycle import apply
from swell.core.snapshot import Options
from swell.core.state import State
from swell.daemon.forecasts import forecast_sentence
from swell.placement.registry import placer_named
from swell.policy.registry import policy_named
from swell.sim.cluster import parse_cluster
from swell.sim.duration_world import Durations, TrueDurations
from swell.sim.engine import Setup, Simulation
from swell.sim.forecast import Change, Interval, copy_of, forecast, what_if
from swell.sim.forecast_accuracy import Accuracy, Tally
from swell.sim.forecast_calibration import Kind
from swell.sim.generate import Recipe, generate
from swell.sim.workload import Arrival, Workload
from swell.speed.book import Book

module = importlib.import_module("swell.sim.forecast")
POLICIES = ("fifo", "elastic-fifo", "srjf", "afs-l")


class Live:
    """A cluster at the moment after the last arrival, and what will really happen to it."""

    def __init__(self, policy: str, seed: int = 1, jobs: int = 25) -> None:
        self.policy, self.placer = policy_named(policy), placer_named("consolidated")
        self.options = Options()
        workload = generate(Recipe(jobs=jobs, hours=1.0, gpus=8, seed=seed, median_s=900, sigma=1.0))
        self.now_s = workload.arrivals[-1].at_s + 1.0
        self.ends: dict[int, float] = {}
        self.state, self.book = self._run(workload, self.now_s)
        self._run(workload, float("inf"))

    def _run(self, workload: object, until_s: float) -> tuple[State, TrueDurations]:
        world = Durations(restart_s=30.0)
        book = TrueDurations(world)
        setup = Setup(
            nodes=parse_cluster("2x4"), policy=self.policy, placer=self.placer, options=self.options, until_s=until_s
        )
        simulation = Simulation(setup, world, book, (self._watch,))
        simulation.run(workload)  # type: ignore[arg-type]
        return simulation.state, book

    def _watch(self, state: State, event: Event) -> None:
        if isinstance(event, RunEnded) and state.jobs[event.run.job].ended:
            self.ends[event.run.job] = event.at_s

    def forecast(self, **changes: Any) -> dict[int, object]:
        arguments: dict[str, Any] = {"samples": 5, **changes}
        return dict(
            forecast(self.state, self.book, self.policy, self.placer, self.options, self.now_s, **arguments).intervals
        )


@pytest.mark.parametrize("policy", POLICIES)
def test_with_the_truth_known_the_forecast_is_what_happens(policy: str) -> None:
    live = Live(policy)
    said = forecast(live.state, live.book, live.policy, live.placer, live.options, live.now_s, samples=1).intervals
    assert set(said) == set(live.state.active)
    errors = [
        abs(interval.end_mid_s - live.ends[job]) / (live.ends[job] - live.now_s) for job, interval in said.items()
    ]
    assert sum(errors) / len(errors) < 0.02


def test_a_forecast_never_changes_the_state() -> None:
    live = Live("elastic-fifo")
    before = copy_of(live.state)
    live.forecast()
    assert copy_of(live.state) == before


def test_the_same_seed_says_the_same_and_intervals_are_in_order() -> None:
    live = Live("srjf")
    said = forecast(live.state, Book(), live.policy, live.placer, live.options, live.now_s)
    assert said == forecast(live.state, Book(), live.policy, live.placer, live.options, live.now_s)
    for interval in said.intervals.values():
        assert interval.start_low_s <= interval.start_mid_s <= interval.start_high_s
        assert live.now_s <= interval.end_low_s <= interval.end_mid_s <= interval.end_high_s


def test_a_paused_job_has_no_forecast() -> None:
    live = Live("fifo")
    waiting = next(job for job in live.state.active if not live.state.jobs[job].holding)
    apply(live.state, JobPaused(job=waiting, at_s=live.now_s))
    assert waiting not in live.forecast()


def test_twice_the_nodes_end_the_queue_sooner_and_half_of_them_later() -> None:
    live = Live("fifo")

    def mean_end_s(change: Change) -> float:
        effects = what_if(live.state, live.book, live.policy, live.placer, live.options, live.now_s, change)
        ends = [effect.after.end_s for effect in effects if effect.after is not None]
        return sum(ends) / len(ends)

    node = next(iter(live.state.nodes.values()))
    more = mean_end_s(Change(add_nodes=parse_cluster("4x4")[2:]))
    fewer = mean_end_s(Change(remove_nodes=(node.name,)))
    assert more < mean_end_s(Change()) < fewer


def test_what_if_says_when_a_new_job_would_start() -> None:
    live = Live("fifo")
    spec = JobSpec(name="new", command=("x",), gpus=GpuRequest(min=2, max=2), estimated_s=60.0)
    effects = what_if(live.state, Book(), live.policy, live.placer, live.options, live.now_s, Change(submit=(spec,)))
    new = effects[-1]
    assert new.name == "new"
    assert new.before is None
    assert new.after is not None
    assert new.after.start_s >= live.now_s


def test_what_if_of_a_policy_compares_both() -> None:
    live = Live("fifo")
    change = Change(policy=policy_named("elastic-fifo"))
    effects = what_if(live.state, live.book, live.policy, live.placer, live.options, live.now_s, change)
    assert all(effect.before and effect.after for effect in effects)
    assert any(effect.before != effect.after for effect in effects)


def test_accuracy_counts_what_was_first_said() -> None:
    live = Live("fifo")
    accuracy = Accuracy()
    said = forecast(live.state, live.book, live.policy, live.placer, live.options, live.now_s).intervals
    for job, interval in said.items():
        accuracy.made(job, Kind.FIRST, live.now_s, interval)
        accuracy.happened(job, live.ends[job])
    assert accuracy.summary()["jobs"] == len(said)
    assert accuracy.first.summary()["mean_error"] < 0.02


def test_a_tally_is_of_the_ends_that_there_were() -> None:
    tally = Tally()
    assert set(tally.summary().values()) == {0.0}
    told = Interval(
        start_low_s=0.0, start_mid_s=0.0, start_high_s=0.0, end_low_s=100.0, end_mid_s=200.0, end_high_s=400.0
    )
    for end_s in (100.0, 250.0, 400.0, 500.0):
        tally.add(0.0, told, end_s)
    tally.add(0.0, replace(told, end_high_s=1e9), 200.0)
    errors = sorted((100 / 100, 50 / 250, 200 / 400, 300 / 500, 0.0))
    assert tally.summary() == {
        "jobs": 5,
        "inside": 4 / 5,
        "unknown": 1 / 5,
        "median_error": errors[2],
        "mean_error": pytest.approx(sum(errors) / 5),
    }


def test_with_very_many_jobs_it_looks_as_far_as_it_may_and_says_how_far(monkeypatch: pytest.MonkeyPatch) -> None:
    live = Live("fifo", jobs=60)
    whole = forecast(live.state, live.book, live.policy, live.placer, live.options, live.now_s, samples=1)
    monkeypatch.setattr(module, "FAR_JOBS", 10)
    monkeypatch.setattr(module, "MOST_LOOKS", 8 * len(live.state.active))
    monkeypatch.setattr(module, "LOOKS", 0)
    near = forecast(live.state, live.book, live.policy, live.placer, live.options, live.now_s, samples=1)
    assert whole.until_s is None
    assert near.until_s is not None
    assert 0 < len(near.intervals) < len(whole.intervals)
    holding = {job for job in live.state.active if live.state.jobs[job].holding}
    assert holding <= set(near.intervals), "what runs has an end, also beyond what was looked at"
    later = sorted(set(whole.intervals) - set(near.intervals))
    starts = {job: interval.start_mid_s for job, interval in whole.intervals.items()}
    assert median(starts[job] for job in later) > median(starts[job] for job in near.intervals)
    assert "starts in more than" in forecast_sentence(live.state.jobs[max(later)], None, near.until_s, live.now_s)


def test_the_longer_a_silent_job_has_run_the_later_and_wider_its_end_is_forecast() -> None:
    spec = JobSpec(name="j", command=("x",), gpus=GpuRequest(min=1, max=1), uses_library=True)
    arrival = Arrival(at_s=0.0, spec=spec, truth={"duration_s": 1e6, "silent": 1.0})

    def left_s(now_s: float) -> tuple[float, float]:
        policy, placer, book = policy_named("swell"), placer_named("consolidated"), Book()
        setup = Setup(nodes=parse_cluster("1x1"), policy=policy, placer=placer, until_s=now_s)
        state = Simulation(setup, Durations(), book).run(Workload(name="w", arrivals=(arrival,)))
        found = forecast(state, book, policy, placer, Options(), now_s).intervals[1]
        return found.end_mid_s - now_s, found.end_high_s - found.end_low_s

    early, late, very_late = left_s(60.0), left_s(20_000.0), left_s(200_000.0)
    assert early[0] < late[0] < very_late[0]
    assert early[1] < late[1] < very_late[1]
    assert very_late[0] > 0.2 * 200_000.0


def test_a_job_in_its_first_of_thirty_epochs_is_never_expected_to_end_before_thirty_of_them() -> None:
    """It reports epochs and has finished none in an hour, though jobs are half an hour long in the median."""
    spec = JobSpec(name="j", command=("x",), gpus=GpuRequest(min=1, max=1), uses_library=True, epochs=30)
    arrival = Arrival(at_s=0.0, spec=spec, truth={"duration_s": 60 * 3600.0})
    policy, placer, book = policy_named("swell"), placer_named("consolidated"), Book()
    setup = Setup(nodes=parse_cluster("1x1"), policy=policy, placer=placer, until_s=3600.0)
    state = Simulation(setup, Durations(), book).run(Workload(name="w", arrivals=(arrival,)))
    assert state.jobs[1].epochs_done == 0
    found = forecast(state, book, policy, placer, Options(), 3600.0).intervals[1]
    assert found.end_low_s - 3600.0 > 29 * 3500.0


def test_a_job_that_outruns_its_users_estimate_is_never_about_to_end_for_ever() -> None:
    """Found on a daemon: estimated at 18 s, it was told to end any moment for fifteen minutes."""
    spec = JobSpec(name="j", command=("x",), gpus=GpuRequest(min=1, max=1), estimated_s=18.0)
    arrival = Arrival(at_s=0.0, spec=spec, truth={"duration_s": 900.0, "silent": 1.0})
    policy, placer, book = policy_named("swell"), placer_named("consolidated"), Book()
    setup = Setup(nodes=parse_cluster("1x1"), policy=policy, placer=placer, until_s=400.0)
    state = Simulation(setup, Durations(), book).run(Workload(name="w", arrivals=(arrival,)))
    found = forecast(state, book, policy, placer, Options(), 400.0).intervals[1]
    assert found.end_mid_s - 400.0 > 30.0
    assert found.end_high_s - 400.0 > 300.0
