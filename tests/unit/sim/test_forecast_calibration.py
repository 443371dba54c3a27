"""Intervals that learn from what came of them: coverage, censoring, and what is kept."""

from __future__ import annotations

import math
import random
from statistics import NormalDist
from typing import Any

import pytest

from benchmarks.policies.forecast_backtest import Backtest, judged, verdict
from swell.core.events import ExitReason, JobCancelled, JobSubmitted, NodeObserved, RunEnded, RunPlanned
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec
from swell.core.lifecycle import apply
from swell.core.resources import Allocation, Part
from swell.core.state import JobRecord, JobState, State
from swell.placement.registry import placer_named
from swell.policy.registry import policy_named
from swell.sim.cluster import parse_cluster
from swell.sim.duration_world import Durations
from swell.sim.engine import Setup, Simulation
from swell.sim.forecast import Interval
from swell.sim.forecast_accuracy import Accuracy, TrackRecord
from swell.sim.forecast_calibration import (
    COVERAGE,
    FAR,
    PRIOR_SCORE,
    Calibration,
    Guess,
    Kind,
    guesses_of,
    honest,
    quantiles,
)
from swell.sim.generate import Recipe, generate
from swell.sim.simulate import Scene
from swell.speed.book import Book


def interval(now_s: float, end_s: float, spread: float = 1.0) -> Interval:
    left_s = end_s - now_s
    return Interval(
        start_low_s=now_s,
        start_mid_s=now_s,
        start_high_s=now_s,
        end_low_s=now_s + left_s / spread,
        end_mid_s=end_s,
        end_high_s=now_s + left_s * spread,
    )


def running() -> JobRecord:
    state = live_state()
    allocation = Allocation(parts=(Part(node=next(iter(state.nodes)), gpus=(0,)),), gpu_type="gpu")
    apply(state, RunPlanned(run=RunId(1, 1), allocation=allocation, at_s=0.0))
    return state.jobs[1]


@pytest.mark.parametrize(("bias", "sigma"), [(0.0, 0.3), (-1.0, 0.2), (1.5, 0.5), (0.0, 1.5)])
def test_after_some_jobs_the_wanted_part_of_ends_is_inside(bias: float, sigma: float) -> None:
    """Whatever the forecasts' bias and spread. Jobs come one after the other; each ends before the next but some."""
    rng, calibration = random.Random(1), Calibration()
    inside = []
    for job in range(600):
        now_s = job * 1000.0
        raw = interval(now_s, now_s + rng.uniform(100, 900), spread=1.3)
        guesses = guesses_of(raw, running(), now_s)
        said = honest(raw, guesses, calibration.scales(now_s))
        end_s = now_s + (raw.end_mid_s - now_s) * math.exp(rng.gauss(bias, sigma))
        inside.append(said.end_low_s <= end_s <= said.end_high_s)
        calibration.made(job, guesses[0])
        calibration.ended(job, end_s)
    assert sum(inside[200:]) / 400 == pytest.approx(COVERAGE, abs=0.06)


def test_before_anything_is_known_the_middle_is_what_was_forecast() -> None:
    raw = interval(100.0, 1100.0)
    said = honest(raw, guesses_of(raw, running(), 100.0), Calibration().scales(100.0))
    assert said.end_mid_s == pytest.approx(1100.0)
    assert said.end_low_s < 700.0
    assert said.end_high_s > 1700.0


@pytest.mark.parametrize("kind", Kind)
def test_before_anything_is_known_scores_are_those_of_the_prior(kind: Kind) -> None:
    mean, deviation = PRIOR_SCORE[kind]
    scales, tail = Calibration().scales(0.0)[kind], NormalDist(mean, deviation).inv_cdf((1.0 - COVERAGE) / 2.0)
    assert scales.mid == pytest.approx(mean, abs=0.01)
    assert scales.low == pytest.approx(tail, abs=0.2 * deviation)
    assert scales.high == pytest.approx(2 * mean - tail, abs=0.2 * deviation)


def test_what_has_not_happened_yet_counts_as_at_least_so_long() -> None:
    """Half of the jobs take four times as long as was said and have not ended: those that have do not mislead."""
    blind, seeing = Calibration(), Calibration()
    for job in range(40):
        guess = Guess(Kind.GROWN, 0.0, 100.0, 0.5)
        seeing.made(job, guess)
        if job % 2:
            blind.made(job, guess)
            blind.ended(job, 100.0)
            seeing.ended(job, 100.0)
    assert seeing.scales(390.0)[Kind.GROWN].high > blind.scales(390.0)[Kind.GROWN].high


def test_quantiles_without_waits_are_the_plain_ones() -> None:
    values = [(float(i), 1.0) for i in range(1, 101)]
    assert quantiles(values, [], (0.1, 0.5, 0.9)) == [10.0, 50.0, 90.0]


def test_a_waiting_job_never_starts_after_its_end() -> None:
    raw = Interval(
        start_low_s=10.0, start_mid_s=500.0, start_high_s=900.0, end_low_s=20.0, end_mid_s=510.0, end_high_s=910.0
    )
    said = honest(raw, guesses_of(raw, live_state().jobs[1], 0.0), Calibration().scales(0.0))
    assert said.start_low_s <= said.end_low_s
    assert said.start_mid_s <= said.end_mid_s
    assert said.start_high_s <= said.end_high_s


def test_what_is_kept_of_a_job_grows_with_the_logarithm_of_its_time_and_goes_with_it() -> None:
    calibration = Calibration()
    for at_s in range(0, 100_000, 3):
        calibration.made(1, Guess(Kind.GROWN, float(at_s), 100.0, 0.5))
    assert len(calibration._open[1]) < 20
    calibration.forget(1)
    assert not calibration._open


def test_a_copy_says_the_same_and_learns_nothing_of_what_comes_later() -> None:
    calibration = Calibration()
    calibration.made(1, Guess(Kind.GROWN, 0.0, 100.0, 0.5))
    calibration.ended(1, 500.0)
    calibration.made(2, Guess(Kind.GROWN, 0.0, 100.0, 0.5))
    copy = calibration.copy()
    before = copy.scales(600.0)
    assert before == calibration.scales(600.0)
    calibration.ended(2, 900.0)
    assert copy.scales(600.0) == before


def live_state() -> State:
    state = State()
    (node,) = parse_cluster("1x2")
    apply(state, NodeObserved(node=node, at_s=0.0))
    for job in (1, 2):
        apply(state, JobSubmitted(job=job, spec=JobSpec(name="j", command=("x",), gpus=GpuRequest()), at_s=0.0))
    return state


def test_a_job_that_has_ended_since_the_forecast_was_begun_is_never_told_of() -> None:
    state, track = live_state(), TrackRecord()
    raw = {1: interval(0.0, 100.0), 2: interval(0.0, 100.0), 7: interval(0.0, 100.0)}
    assert set(track.shown(raw, state, 0.0, track.calibration.scales(0.0))) == {1, 2}


def test_ends_are_judged_and_cancelled_jobs_are_not() -> None:
    state, track = live_state(), TrackRecord()
    raw = {1: interval(0.0, 100.0), 2: interval(0.0, 100.0)}
    track.shown(raw, state, 0.0, track.calibration.scales(0.0))
    track.happened(JobCancelled(job=2, at_s=50.0), state)
    track.happened(RunEnded(run=RunId(1, 1), reason=ExitReason.FINISHED, at_s=100.0), state)
    summary = track.accuracy.summary()
    assert summary["jobs"] == summary["inside"] == 1
    by_kind = summary["by_kind"]
    assert isinstance(by_kind, dict)
    assert list(by_kind) == ["pinned"], "it reports nothing and has no checkpoints"
    assert by_kind["pinned"]["inside"] == 1.0


def test_forecasts_are_judged_by_how_far_the_job_was() -> None:
    """The first of each kind: one that was made of a job that had shown nothing says nothing of the later ones."""
    accuracy = Accuracy()
    accuracy.made(1, Kind.FIRST, 0.0, interval(0.0, 10.0))
    accuracy.made(1, Kind.GROWN, 80.0, interval(80.0, 100.0, spread=1.2))
    accuracy.made(1, Kind.GROWN, 99.0, interval(99.0, 500.0))
    accuracy.happened(1, 100.0)
    assert accuracy.summary()["inside"] == 0.0
    assert {kind: tally.inside for kind, tally in accuracy.by_kind.items()} == {Kind.FIRST: 0, Kind.GROWN: 1}


@pytest.mark.parametrize(
    ("spec", "record", "kind"),
    [
        ({"uses_library": True}, {}, Kind.SILENT),
        ({}, {}, Kind.PINNED),
        ({}, {"epochs_total": 10}, Kind.FIRST),
        ({}, {"epochs_total": 10, "epochs_done": 4}, Kind.WAITS),
        ({}, {"epochs_total": 10, "epochs_done": 1, "state": JobState.RUNNING}, Kind.YOUNG),
        ({}, {"epochs_total": 10, "epochs_done": 4, "state": JobState.RUNNING}, Kind.GROWN),
    ],
)
def test_jobs_are_told_apart_by_what_they_have_shown(spec: Any, record: Any, kind: Kind) -> None:
    job = JobRecord(
        id=1,
        spec=JobSpec(name="j", command=("x",), gpus=GpuRequest(), **spec),
        submitted_s=0.0,
        **{"uses_library": bool(spec), **record},
    )
    assert guesses_of(interval(0.0, 100.0), job, 0.0)[0].kind is kind
    if job.holding:
        assert guesses_of(interval(0.0, 7200.0), job, 0.0)[0].kind is FAR[kind]


def test_forecasts_of_a_generated_workload_hold_what_they_promise() -> None:
    """Lengths that nobody knows before: most ends are inside all the same."""
    workload = generate(Recipe(jobs=60, hours=3.0, gpus=8, families=4, seed=5, median_s=600, sigma=0.7))
    setup = Setup(nodes=parse_cluster("2x4"), policy=policy_named("elastic-fifo"), placer=placer_named("consolidated"))
    scene = Scene(workload=workload, nodes=setup.nodes, world=Durations(restart_s=30.0), book=Book())
    backtest = Backtest(setup, scene, every_s=600.0)
    simulation = Simulation(setup, scene.world, scene.book, (backtest,))
    simulation.on_pass = lambda now_s: backtest.look_ahead(simulation.state, now_s)
    simulation.run(workload)
    said = verdict([judged(one, backtest.ends[one.job]) for one in backtest.told])
    assert said.forecasts > 100
    assert 0.65 < said.inside < 0.97
