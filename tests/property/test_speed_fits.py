"""Short cuts in fitting give what the long way round does."""

from __future__ import annotations

from itertools import pairwise, product
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.core.events import EpochEnded
from swell.core.ids import RunId
from swell.speed.batch_choices import BATCHES, Bounds, choices, packed, steps
from swell.speed.epoch_time import DEFAULT_SHAPE, Point, Problem, Shape, fit
from swell.speed.epoch_work import CELLS, EDGES, EpochWork
from swell.speed.measurements import KEEP_EPOCHS, Measurements
from swell.speed.step_time import StepModel
from unit.policy.strategies import EXAMPLES, MARKS

pytestmark = MARKS
_part = st.just(0.0) | st.floats(0.001, 0.2)  # more of them, and shapes would be implausible
_shapes = st.builds(Shape, st.floats(0.5, 1.0), _part, st.floats(0.0, 0.05), _part)
_points = st.builds(
    Point,
    gpus=st.sampled_from([1, 2, 3, 4, 8, 16, 32]),
    nodes=st.integers(1, 4),
    time_s=st.floats(0.8, 1.2),  # over that of the prior's shape, until it is made a time
    weight=st.floats(1.0, 5.0),
)


def _placed(point: Point, prior: Shape) -> Point:
    nodes = min(point.nodes, point.gpus)
    time_s = point.time_s * prior.time(point.gpus, nodes)
    return Point(gpus=point.gpus, nodes=nodes, time_s=time_s, weight=point.weight)


def _best_of_all_sets(problem: Problem, scale: float) -> float:
    """The least sum of squares of all sets of parameters that may be above zero, each solved alone."""
    rows, weights = _rows(problem, scale)
    least = float(weights.sum())
    for chosen in product((False, True), repeat=4):
        if any(chosen):
            used = rows[:, np.array(chosen)] * np.sqrt(weights)[:, None]
            found, *_ = np.linalg.lstsq(used, np.sqrt(weights), rcond=None)
            if (found >= 0).all():
                least = min(least, float(((used @ found - np.sqrt(weights)) ** 2).sum()))
    return least


def _rows(problem: Problem, scale: float) -> tuple[np.ndarray, np.ndarray]:
    sizes = [(size, -(-size // 8)) for size in (1, 2, 4, 8, 16, 32, 64)]
    held = [(k, m, problem.prior.time(k, m), problem.trust) for k, m in sizes]
    seen = [(p.gpus, p.nodes, p.time_s / scale, p.weight) for p in problem.points]
    rows = [[1 / k / time, 1 / time, np.log2(k) / time, (m > 1) / time] for k, m, time, _ in seen + held]
    return np.array(rows), np.array([weight for *_, weight in seen + held])


@EXAMPLES
@given(prior=_shapes, points=st.lists(_points, min_size=1, max_size=6), trust=st.sampled_from([0.05, 0.5]))
def test_never_a_set_of_parameters_that_fits_better(prior: Shape, points: list[Point], trust: float) -> None:
    problem = Problem(points=tuple(_placed(p, prior.relative()) for p in points), prior=prior.relative(), trust=trust)
    found = fit(problem)
    ratios = sorted(p.time_s / problem.prior.time(p.gpus, p.nodes) for p in problem.points)
    scale = (ratios[(len(ratios) - 1) // 2] * ratios[len(ratios) // 2]) ** 0.5
    rows, weights = _rows(problem, scale)
    errors = rows @ np.array([found.a, found.b, found.c, found.d]) / scale - 1.0
    assert min(found.a, found.b, found.c, found.d) >= 0.0
    if np.abs(errors[: len(points)]).max() < 0.1:  # else some were given less weight
        assert float((weights * errors**2).sum()) <= _best_of_all_sets(problem, scale) + 1e-6


def test_without_points_the_prior_is_believed() -> None:
    found = fit(Problem(points=(), prior=DEFAULT_SHAPE, trust=0.05))
    assert [found.time(k, m) for k, m in ((1, 1), (4, 1), (16, 2))] == pytest.approx(
        [DEFAULT_SHAPE.time(k, m) for k, m in ((1, 1), (4, 1), (16, 2))]
    )


@EXAMPLES
@given(
    model=st.builds(
        StepModel,
        st.floats(0.001, 1.0),
        st.floats(0.0, 0.01),
        st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 0.1)),
        st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 0.1)),
        st.sampled_from([1.0, 1.6, 10.0]),
    ),
    bounds=st.builds(
        Bounds, st.integers(1, 512), st.integers(512, 65536), st.integers(0, 8), st.sampled_from([0, 64, 1024])
    ),
    per_node=st.integers(1, 8),
    gpus=st.integers(1, 24),
)
def test_steps_of_all_sizes_at_once_are_those_of_each(
    model: StepModel, bounds: Bounds, per_node: int, gpus: int
) -> None:
    sizes = packed(24, per_node)
    step_s, sample_s = steps(model, bounds, sizes)
    found = choices(bounds, sizes)
    assert step_s.shape == (BATCHES, 24)
    _, nodes = sizes[gpus - 1]
    for row in range(BATCHES):
        batch, local, more = (float(of[row, gpus - 1]) for of in (found.batch, found.local, found.accumulate))
        assert local * gpus * (more + 1) == pytest.approx(batch)
        assert bounds.initial * 0.999 <= batch <= bounds.largest * 1.001
        assert local <= (bounds.local_max or bounds.largest) * 1.001
        assert step_s[row, gpus - 1] == pytest.approx(model.step_s(nodes, gpus, local, more))
        assert sample_s[row, gpus - 1] == pytest.approx(step_s[row, gpus - 1] / batch)
    alone, _ = steps(model, bounds, ((gpus, nodes),))
    assert alone[:, 0].tolist() == pytest.approx(step_s[:, gpus - 1].tolist())


@EXAMPLES
@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.floats(0.1, 100.0)), min_size=1, max_size=40))
def test_typical_times_are_those_of_the_last_epochs(told: list[tuple[int, float]]) -> None:
    measurements, last = Measurements(), dict[int, list[float]]()
    for epoch, (gpus, epoch_s) in enumerate(told):
        run = RunId(1, 1)
        measurements.add(
            EpochEnded(run=run, at_s=0.0, epoch=epoch, epoch_s=epoch_s, gpus=gpus, nodes=1, gpu_type="gpu")
        )
        last.setdefault(gpus, []).append(epoch_s)
    assert {key.gpus: times.typical_s for key, times in measurements.times.items()} == {
        gpus: median(times[-KEEP_EPOCHS:]) for gpus, times in last.items()
    }


@EXAMPLES
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3)), min_size=1, max_size=60))
def test_epochs_are_counted_as_long_as_their_times_are_kept(told: list[tuple[int, int]]) -> None:
    measurements = Measurements()
    for epoch, (gpus, count) in enumerate(told):
        ended = EpochEnded(
            run=RunId(1, 1), at_s=0.0, epoch=epoch, epoch_s=1.0, count=count, gpus=gpus, nodes=1, gpu_type="gpu"
        )
        measurements.add(ended)
        assert measurements.count == sum(times.count for times in measurements.times.values())


@EXAMPLES
@given(
    seen=st.lists(st.tuples(st.integers(0, CELLS - 1), st.floats(0.1, 10.0)), max_size=12),
    begin=st.floats(0.0, 1.2),
    end=st.floats(0.0, 1.0),
)
def test_the_work_between_two_parts_is_that_of_each_cell_between_them(
    seen: list[tuple[int, float]], begin: float, end: float
) -> None:
    course = EpochWork()
    for cell, relative in seen:
        course.add([cell], relative)
    cells = [(low, high, course.at((low + high) / 2)) for low, high in pairwise(EDGES)]
    expected = sum(max(0.0, min(end, high) - max(begin, low)) * level for low, high, level in cells)
    assert course.between(begin, end) == pytest.approx(expected)
