"""Measurements that people look at: recent, bounded, in order, and never the same point twice."""

from __future__ import annotations

from swell.core.events import EpochEnded
from swell.core.ids import RunId
from swell.daemon.series import MAX_JOBS, MAX_NAMES, MAX_POINTS, SAMPLES, RecentSeries


def test_points_of_reports_follow_each_other_and_one_sent_again_counts_once() -> None:
    series = RecentSeries()
    series.add(1, {"loss": ((1.0, 0.9), (2.0, 0.8))})
    series.add(1, {"loss": ((2.0, 0.8), (3.0, 0.7)), "accuracy": ((3.0, 0.5),)})
    assert series.of(1) == {"accuracy": ((3.0, 0.5),), "loss": ((1.0, 0.9), (2.0, 0.8), (3.0, 0.7))}
    assert series.of(2) == {}


def test_a_chatty_job_keeps_its_newest_point_and_a_bounded_number() -> None:
    series = RecentSeries()
    for start in range(0, 3000, 100):
        series.add(1, {"loss": tuple((float(i), 1.0) for i in range(start, start + 100))})
    points = series.of(1)["loss"]
    assert MAX_POINTS // 2 < len(points) <= MAX_POINTS
    assert points[-1][0] == 2999.0
    assert [at_s for at_s, _ in points] == sorted({at_s for at_s, _ in points})
    series.add(1, {f"metric-{i}": ((1.0, 1.0),) for i in range(2 * MAX_NAMES)})
    assert len(series.of(1)) == MAX_NAMES


def test_jobs_that_reported_longest_ago_are_forgotten_first() -> None:
    series = RecentSeries()
    for job in range(1, MAX_JOBS + 1):
        series.add(job, {"loss": ((1.0, 1.0),)})
    series.add(1, {"loss": ((2.0, 1.0),)})
    series.add(MAX_JOBS + 1, {"loss": ((1.0, 1.0),)})
    assert series.of(1)
    assert series.of(2) == {}


def test_throughput_is_kept_wherever_it_was_measured() -> None:
    series = RecentSeries()
    series.happened([EpochEnded(run=RunId(1, 1), at_s=5.0, epoch=1, samples_per_s=640.0)])
    series.happened([EpochEnded(run=RunId(1, 1), at_s=6.0, epoch=2)])
    assert series.of(1) == {SAMPLES: ((5.0, 640.0),)}
