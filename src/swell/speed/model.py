"""The time of an epoch as a function of GPUs and nodes, and how it is fitted to what was measured.

T(k, m) = a/k + b + c·log2(k) + d·[m > 1]: work that is shared, work that is not, communication that grows with the
number of GPUs, and the price of leaving one node (measured steps take about as long on four nodes as on two). All four
are at least zero, so that T cannot turn wild beyond what was measured.

Fitting is weighted least squares on relative errors under that bound, exact by trying each set of parameters that may
be above zero, for any number of jobs at once, then twice more with Huber weights, so that a measurement that does not
fit the others counts for little. What is not measured is held by prior rows of small weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, log2

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

PARAMETERS = 4
HUBER = 0.1
"""Relative errors above this count linearly, not by their square."""
SLOWEST, STEEPEST = 0.3, 1.5
"""A fit by which k GPUs are slower than 0.3 of one, or faster than 1.5·k, is none: the prior's shape is kept."""
PRIOR_SIZES = (1, 2, 4, 8, 16, 32, 64)
PRIOR_NODE = 8
"""GPUs of a node in the rows of a prior: how a shape is written down, whatever the cluster."""


def basis(gpus: int, nodes: int) -> tuple[float, float, float, float]:
    return 1.0 / gpus, 1.0, log2(gpus), float(nodes > 1)


@dataclass(frozen=True, slots=True)
class Shape:
    """Fitted parameters. Times are in the unit of what was fitted: seconds of an epoch, or relative ones."""

    a: float
    b: float
    c: float
    d: float

    def time(self, gpus: int, nodes: int) -> float:
        k = max(1, gpus)
        m = min(max(1, nodes), k)
        return max(self.a / k + self.b + self.c * log2(k) + self.d * (m > 1), 1e-9)

    def scaled(self, factor: float) -> Shape:
        return Shape(self.a * factor, self.b * factor, self.c * factor, self.d * factor)

    def relative(self) -> Shape:
        """The same shape with a time of 1 on one GPU."""
        return self.scaled(1.0 / self.time(1, 1))


DEFAULT_SHAPE = Shape(0.975, 0.02, 0.005, 0.05).relative()
"""Before anything is measured: twice the GPUs are not twice the speed, and a second node costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A measured time: on so many GPUs of so many nodes, with a weight (about the number of epochs)."""

    gpus: int
    nodes: int
    time_s: float
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Points of one job and the shape to believe where there are none; `trust` is the weight of each prior row."""

    points: Sequence[Point]
    prior: Shape
    trust: float


def fit(problems: Sequence[Problem]) -> list[Shape]:
    """Shapes in the unit of the points, all problems at once."""
    if not problems:
        return []
    scales = [_scale(problem) for problem in problems]
    rows, weights = _rows(problems, scales)
    solved = _solve(rows, weights)
    measured = np.arange(rows.shape[1]) < np.array([len(problem.points) for problem in problems])[:, None]
    for _ in range(2):
        errors = np.where(measured, np.abs(np.einsum("jrp,jp->jr", rows, solved) - 1.0), 0.0)
        solved = _solve(rows, weights * np.minimum(1.0, HUBER / np.maximum(errors, 1e-12)))
    shapes = [Shape(*map(float, found)).scaled(scale) for found, scale in zip(solved, scales, strict=True)]
    return [
        shape if _plausible(shape, problem) else problem.prior.scaled(scale)
        for shape, problem, scale in zip(shapes, problems, scales, strict=True)
    ]


def _plausible(shape: Shape, problem: Problem) -> bool:
    """One GPU is not several times faster than those measured, nor slower than all of them together could make up."""
    alone = shape.time(1, 1)
    return all(
        SLOWEST * shape.time(p.gpus, p.nodes) <= alone <= STEEPEST * p.gpus * shape.time(p.gpus, p.nodes)
        for p in problem.points
    )


def _rows(problems: Sequence[Problem], scales: Sequence[float]) -> tuple[Floats, Floats]:
    """Each row is the basis divided by the time, so that its product with the parameters should be 1. Times are
    divided by the job's scale: numbers near one, whatever the unit."""
    most = max(len(problem.points) for problem in problems) + len(PRIOR_SIZES)
    rows = np.zeros((len(problems), most, PARAMETERS))
    weights = np.zeros((len(problems), most))
    for j, (problem, scale) in enumerate(zip(problems, scales, strict=True)):
        prior = problem.prior
        for r, point in enumerate(problem.points):
            against = min(max(scale / point.time_s, 1e-4), 1e4)
            rows[j, r] = [x * against for x in basis(point.gpus, point.nodes)]
            weights[j, r] = point.weight
        for r, size in enumerate(PRIOR_SIZES, start=len(problem.points)):
            nodes = ceil(size / PRIOR_NODE)
            time = prior.time(size, nodes)
            rows[j, r] = [x / time for x in basis(size, nodes)]
            weights[j, r] = problem.trust
    return rows, weights


def _scale(problem: Problem) -> float:
    """How many times slower than the prior's shape this job is: the median over its points."""
    ratios = sorted(point.time_s / problem.prior.time(point.gpus, point.nodes) for point in problem.points)
    middle = len(ratios) // 2
    if not ratios:
        return 1.0
    return ratios[middle] if len(ratios) % 2 else (ratios[middle - 1] * ratios[middle]) ** 0.5


_SETS = np.array([chosen for chosen in product((0.0, 1.0), repeat=PARAMETERS) if any(chosen)])
"""Which parameters are above zero: every possibility, a row each."""
_BOTH = _SETS[:, :, None] * _SETS[:, None, :]
_EYE = np.eye(PARAMETERS)


def _solve(rows: Floats, weights: Floats) -> Floats:
    """Least squares under parameters ≥ 0, exactly: the best feasible one of all sets of parameters. All sets are
    solved at once; a parameter that is not in a set has an equation of its own there, which says that it is zero."""
    weighted = rows * weights[:, :, None]
    normal = (weighted.transpose(0, 2, 1) @ rows)[:, None]
    right = weighted.sum(axis=1)[:, None] * _SETS
    ridge = 1e-10 * np.trace(normal, axis1=2, axis2=3)[:, :, None, None]
    alone = _EYE * np.where(_SETS > 0.0, ridge[..., 0], 1.0)[..., None]
    solved = np.linalg.solve(normal * _BOTH + alone, right[..., None])[..., 0]
    # For a least-squares solution the sum of squares is a constant minus right·solution.
    cost = np.where((solved >= 0.0).all(axis=2), -(right * solved).sum(axis=2), np.inf)
    return np.asarray(solved[np.arange(len(rows)), cost.argmin(axis=1)])
