"""Deviations of a simulated world: none unless asked for, and the same again for the same seed."""

from __future__ import annotations

from statistics import mean

from swell.core.ids import RunId
from swell.sim.noise import Noise

RUNS = [RunId(job=job, attempt=1) for job in range(1, 401)]


def test_without_noise_the_world_is_as_measured() -> None:
    assert {Noise().of_job(run.job, 7) for run in RUNS} == {1.0}
    assert {Noise().of_run(run, 7) for run in RUNS} == {1.0}
    assert {Noise().of_report(run, 3, 7) for run in RUNS} == {1.0}


def test_the_same_seed_gives_the_same_deviation_another_one_does_not() -> None:
    noise = Noise(speed=0.3, straggler=0.5, report=0.3)
    first = [(noise.of_job(r.job, 1), noise.of_run(r, 1), noise.of_report(r, 2, 1)) for r in RUNS]
    assert first == [(noise.of_job(r.job, 1), noise.of_run(r, 1), noise.of_report(r, 2, 1)) for r in RUNS]
    assert first != [(noise.of_job(r.job, 2), noise.of_run(r, 2), noise.of_report(r, 2, 2)) for r in RUNS]
    assert noise.of_report(RUNS[0], 2, 1) != noise.of_report(RUNS[0], 3, 1)


def test_stragglers_are_as_frequent_and_as_slow_as_specified() -> None:
    speeds = [Noise(straggler=0.25, slowdown=0.4).of_run(run, 0) for run in RUNS]
    assert set(speeds) == {0.4, 1.0}
    assert 0.18 < mean(speed == 0.4 for speed in speeds) < 0.32
