"""The time of an epoch as a function of GPUs and nodes, and its fit to measurements.

T(k, m) = a/k + b + c·log2(k) + d·[m > 1]: work that is shared, work that is not, communication that grows with the
number of GPUs, and the price of leaving one node (measured steps take about as long on four nodes as on two). All four
are at least zero, so that T cannot turn wild beyond what was measured.

Fitting is weighted least squares on relative errors under that bound, exact by exchanging parameters between those that
are zero and those that are not until none is on the wrong side; then twice more with Huber weights, so that a
measurement that does not fit the others counts for little. What is not measured is held by prior rows of small weight.
In plain floats: with a few points and four parameters calls of numpy would take longer than what they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import ceil, log2
from typing import NamedTuple

Row = tuple[float, float, float, float]
"""One value for each parameter."""
HUBER = 0.1
"""Relative errors above this count linearly, not by their square."""
SLOWEST, STEEPEST = 0.3, 1.5
"""A fit by which k GPUs are slower than 0.3 of one, or faster than 1.5·k, is rejected: the prior's shape is kept."""
PRIOR_SIZES = (1, 2, 4, 8, 16, 32, 64)
PRIOR_NODE = 8
"""GPUs per node in the rows of a prior, regardless of the cluster."""


def _row(gpus: int, nodes: int, times: float) -> Row:
    """A row whose product with the parameters is the time there, multiplied by `times`."""
    return times / gpus, times, times * log2(gpus), times * (nodes > 1)


class Shape(NamedTuple):
    """Fitted parameters. Times are in the unit of the fitted points: seconds of an epoch, or relative."""

    a: float
    b: float
    c: float
    d: float

    def time(self, gpus: int, nodes: int) -> float:
        if gpus <= 1:
            return max(self.a + self.b, 1e-9)
        time = self.a / gpus + self.b + self.c * log2(gpus)
        return max(time + self.d if nodes > 1 else time, 1e-9)

    def scaled(self, factor: float) -> Shape:
        return Shape(self.a * factor, self.b * factor, self.c * factor, self.d * factor)

    def relative(self) -> Shape:
        """The same shape with a time of 1 on one GPU."""
        return self.scaled(1.0 / self.time(1, 1))


DEFAULT_SHAPE = Shape(0.975, 0.02, 0.005, 0.05).relative()
"""The prior before any measurement: twice the GPUs are less than twice the speed, and a second node costs time."""


class Point(NamedTuple):
    """A measured time: number of GPUs and of nodes, with a weight (about the number of epochs)."""

    gpus: int
    nodes: int
    time_s: float
    weight: float


class Problem(NamedTuple):
    """Points of one job, and the prior shape; `trust` is the weight of each row of the prior."""

    points: tuple[Point, ...]
    prior: Shape
    trust: float


@lru_cache(maxsize=2048)
def fit(problem: Problem) -> Shape:
    """The shape in the unit of the points. Cached, because epochs of equal length, and similar jobs, give the same
    problem again."""
    scale = _scale(problem)
    # Each row should give 1 with the parameters. Divided by the scale: numbers near one, whatever the unit.
    rows = [_row(p.gpus, p.nodes, min(max(scale / p.time_s, 1e-4), 1e4)) for p in problem.points]
    held = _prior_sums(problem.prior, problem.trust)
    weights = [point.weight for point in problem.points]
    prior = problem.prior
    used = (prior.a > 0.0, prior.b > 0.0, prior.c > 0.0, prior.d > 0.0)
    found, used = _least_squares(_sums(zip(rows, weights, strict=True), held), used)
    for _ in range(2):
        before = weights
        weights = [p.weight * _huber(row, found) for p, row in zip(problem.points, rows, strict=True)]
        if weights == before:  # no outlier
            break
        found, used = _least_squares(_sums(zip(rows, weights, strict=True), held), used)
    shape = Shape(*found).scaled(scale)
    return shape if _plausible(shape, problem) else problem.prior.scaled(scale)


def _huber(row: Row, found: Row) -> float:
    error = abs(row[0] * found[0] + row[1] * found[1] + row[2] * found[2] + row[3] * found[3] - 1.0)
    return HUBER / error if error > HUBER else 1.0


def _plausible(shape: Shape, problem: Problem) -> bool:
    """Whether the shape is plausible at the measured points, by `SLOWEST` and `STEEPEST`."""
    alone = shape.time(1, 1)
    for gpus, nodes, _, _ in problem.points:
        time = shape.time(gpus, nodes)
        if not SLOWEST * time <= alone <= STEEPEST * gpus * time:
            return False
    return True


def _scale(problem: Problem) -> float:
    """How many times slower than the prior's shape this job is: the median over its points."""
    ratios = sorted(point.time_s / problem.prior.time(point.gpus, point.nodes) for point in problem.points)
    middle = len(ratios) // 2
    if not ratios:
        return 1.0
    return ratios[middle] if len(ratios) % 2 else (ratios[middle - 1] * ratios[middle]) ** 0.5


Sums = tuple[float, ...]
"""The normal equations of weighted rows: sums of the products aa, ab, ac, ad, bb, bc, bd, cc, cd, dd, then of each."""
_NO_SUMS: Sums = (0.0,) * 14


def _sums(rows: Iterable[tuple[Row, float]], before: Sums = _NO_SUMS) -> Sums:
    aa, ab, ac, ad, bb, bc, bd, cc, cd, dd, a, b, c, d = before
    for (p, q, r, s), weight in rows:
        wp, wq, wr, ws = weight * p, weight * q, weight * r, weight * s
        aa, ab, ac, ad = aa + wp * p, ab + wp * q, ac + wp * r, ad + wp * s
        bb, bc, bd = bb + wq * q, bc + wq * r, bd + wq * s
        cc, cd, dd = cc + wr * r, cd + wr * s, dd + ws * s
        a, b, c, d = a + wp, b + wq, c + wr, d + ws
    return aa, ab, ac, ad, bb, bc, bd, cc, cd, dd, a, b, c, d


@lru_cache(maxsize=1024)
def _prior_sums(prior: Shape, trust: float) -> Sums:
    sizes = [(size, ceil(size / PRIOR_NODE)) for size in PRIOR_SIZES]
    return _sums((_row(size, nodes, 1.0 / prior.time(size, nodes)), trust) for size, nodes in sizes)


Used = tuple[bool, bool, bool, bool]
"""Which parameters are above zero."""
_ROUNDING = 1e-8
"""A parameter that would improve the fit by at most this part stays zero: ridge and rounding have the same effect."""


def _least_squares(sums: Sums, used: Used) -> tuple[Row, Used]:
    """Exact least squares with parameters ≥ 0. `used`: the initial guess which are above zero. A parameter on the wrong
    side (used and below zero, or unused and pulled above it) changes sides, the last one first, until none is left;
    this terminates with any initial guess (Murty 1974)."""
    aa, ab, ac, ad, bb, bc, bd, cc, cd, dd, *right = sums
    ridge = 1e-10 * (aa + bb + cc + dd)
    aa, bb, cc, dd = aa + ridge, bb + ridge, cc + ridge, dd + ridge
    normal = ((aa, ab, ac, ad), (ab, bb, bc, bd), (ac, bc, cc, cd), (ad, bd, cd, dd))
    found = _solved(normal, right, used)
    for _ in range(2 ** len(used)):
        wrong = _on_the_wrong_side(normal, right, found, used)
        if wrong < 0:
            break
        used = (used[0] != (wrong == 0), used[1] != (wrong == 1), used[2] != (wrong == 2), used[3] != (wrong == 3))
        found = _solved(normal, right, used)
    a, b, c, d = found
    return (max(a, 0.0), max(b, 0.0), max(c, 0.0), max(d, 0.0)), used


def _on_the_wrong_side(normal: Sequence[Row], right: Sequence[float], found: Row, used: Used) -> int:
    a, b, c, d = found
    for at in (3, 2, 1, 0):
        if used[at]:
            if found[at] < 0.0:
                return at
        else:
            p, q, r, s = normal[at]
            if right[at] - (p * a + q * b + r * c + s * d) > _ROUNDING * right[at]:
                return at
    return -1


def _solved(normal: Sequence[Row], right: Sequence[float], used: Used) -> Row:
    """Solves the normal equations; an unused parameter gets an equation that sets it to zero. By L·D·Lᵀ factors, as the
    equations are symmetric and positive definite."""
    (aa, ab, ac, ad), (_, bb, bc, bd), (_, _, cc, cd), (_, _, _, dd) = normal
    a, b, c, d = right
    if not used[0]:
        aa, ab, ac, ad, a = 1.0, 0.0, 0.0, 0.0, 0.0
    if not used[1]:
        bb, ab, bc, bd, b = 1.0, 0.0, 0.0, 0.0, 0.0
    if not used[2]:
        cc, ac, bc, cd, c = 1.0, 0.0, 0.0, 0.0, 0.0
    if not used[3]:
        dd, ad, bd, cd, d = 1.0, 0.0, 0.0, 0.0, 0.0
    ba, ca, da = ab / aa, ac / aa, ad / aa
    bb, bc, bd = bb - ba * ab, bc - ba * ac, bd - ba * ad
    cb, db = bc / bb, bd / bb
    cc, cd = cc - ca * ac - cb * bc, cd - ca * ad - cb * bd
    dc = cd / cc
    dd = dd - da * ad - db * bd - dc * cd
    b = b - ba * a
    c = c - ca * a - cb * b
    d = (d - da * a - db * b - dc * c) / dd
    c = c / cc - dc * d
    b = b / bb - cb * c - db * d
    return a / aa - ba * b - ca * c - da * d, b, c, d
