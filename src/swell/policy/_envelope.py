"""Upper concave envelopes of speed curves, kept as rows of one padded table so that thousands are handled at once.

A greedy that buys the best gain per GPU is exact on a concave curve. Real curves are not concave: a size that needs one
more node may bring nothing. So each curve is replaced by the sizes on its upper envelope, and only those are bought.
Envelopes are cached by the identity of the curve (the same object as long as nothing was learned).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from swell.core.snapshot import Curve

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Number = TypeVar("Number", np.int64, np.float64)
NONE = 0
"""The row of a job that cannot use a GPU type: no size at all."""
_MANY_SIZES = 12


@lru_cache(maxsize=4096)
def useful_sizes(sizes: tuple[int, ...], per_node: int) -> tuple[int, ...]:
    """Of many allowed sizes those that pack well: halves of a node, whole nodes, the least and the most.

    Odd sizes gain little over their neighbours, fragment nodes and invite one more restart; leftovers are given out in
    any allowed size all the same. Jobs that list a few sizes keep them all.
    """
    if len(sizes) <= 2:
        return sizes
    if len(sizes) <= _MANY_SIZES and sizes[-1] - sizes[0] >= len(sizes):
        return sizes
    kept = [n for n in sizes if n in (sizes[0], sizes[-1]) or _packs(n, max(1, per_node))]
    return tuple(_thinned(kept))


def _packs(n: int, per_node: int) -> bool:
    return n % per_node == 0 or (n < per_node and n & (n - 1) == 0)


def _thinned(sizes: list[int]) -> list[int]:
    """Large sizes at most every eighth: from 32 GPUs on, 4 more are not a different decision."""
    kept: list[int] = []
    for n in sizes:
        if not kept or n == sizes[-1] or n >= kept[-1] * 1.125:
            kept.append(n)
    return kept


def envelope(curve: Curve, sizes: tuple[int, ...]) -> list[tuple[int, float]]:
    """Vertices (n, speed) of the upper concave envelope through (0, 0), speeds strictly rising.

    The smallest size always is the first vertex or lies under the chord from zero to a later one.
    """
    points: list[tuple[int, float]] = [(0, 0.0)]
    last = len(curve) - 1
    for n in sizes:
        speed = curve[min(n, last)]
        if speed <= points[-1][1]:
            continue
        while len(points) > 1 and _under(points[-2], points[-1], (n, speed)):
            points.pop()
        points.append((n, speed))
    return points[1:]


def _under(a: tuple[int, float], b: tuple[int, float], c: tuple[int, float]) -> bool:
    """Does b lie on or under the chord from a to c?"""
    return (b[1] - a[1]) * (c[0] - b[0]) <= (c[1] - b[1]) * (b[0] - a[0])


def envelopes(sizes: Ints, speeds: Floats) -> tuple[Ints, Floats]:
    """As `envelope`, for many rows at once and in the same steps: the vertices, padded by repeating the last one.

    Points of speed 0 are no points: rows are filled up with them.
    """
    count, width = sizes.shape
    stack_n, stack_y = np.zeros((width + 1, count), dtype=np.int64), np.zeros((width + 1, count))
    top = np.zeros(count, dtype=np.int64)
    for n, y in zip(np.ascontiguousarray(sizes.T), np.ascontiguousarray(speeds.T), strict=True):
        rows = np.flatnonzero(y > stack_y[top, np.arange(count)])
        _pop(stack_n, stack_y, top, rows, (n, y))
        top[rows] += 1
        stack_n[top[rows], rows], stack_y[top[rows], rows] = n[rows], y[rows]
    last = np.minimum(np.arange(1, max(2, int(top.max(initial=0)) + 1))[:, None], top)
    return np.take_along_axis(stack_n, last, axis=0).T, np.take_along_axis(stack_y, last, axis=0).T


def _pop(stack_n: Ints, stack_y: Floats, top: Ints, rows: Ints, point: tuple[Ints, Floats]) -> None:
    """Take vertices off these rows' stacks that lie under the chord to the point."""
    n, y = point
    rows = rows[top[rows] > 0]
    while len(rows):
        at = top[rows]
        a_n, a_y, b_n, b_y = stack_n[at - 1, rows], stack_y[at - 1, rows], stack_n[at, rows], stack_y[at, rows]
        rows = rows[(b_y - a_y) * (n[rows] - b_n) <= (y[rows] - b_y) * (b_n - a_n)]
        top[rows] -= 1
        rows = rows[top[rows] > 0]


@lru_cache(maxsize=4096)
def _picker(sizes: tuple[int, ...], last: int) -> Callable[[Curve], tuple[float, ...]]:
    """Speeds at these sizes of a curve that ends at `last`; S(0) before them, so that it always is a tuple."""
    return itemgetter(0, *(min(n, last) for n in sizes))


def _many(curves: list[Curve], wanted: list[tuple[int, ...]]) -> tuple[Ints, Floats]:
    """Envelopes of curves at the sizes wanted of each."""
    counts = np.fromiter(map(len, wanted), np.int64, len(wanted))
    filled = np.arange(int(counts.max()))[None, :] < counts[:, None]
    sizes, speeds = np.zeros(filled.shape, dtype=np.int64), np.zeros(filled.shape)
    sizes[filled] = np.fromiter(chain.from_iterable(wanted), np.int64)
    picked = (_picker(own, len(curve) - 1)(curve)[1:] for curve, own in zip(curves, wanted, strict=True))
    speeds[filled] = np.fromiter(chain.from_iterable(picked), np.float64)
    return envelopes(sizes, speeds)


def _few(curves: list[Curve], wanted: list[tuple[int, ...]]) -> tuple[Ints, Floats]:
    """The same, one by one: for a few that is faster."""
    found = [envelope(curve, own) or [(0, 0.0)] for curve, own in zip(curves, wanted, strict=True)]
    width = max(map(len, found))
    padded = [points + points[-1:] * (width - len(points)) for points in found]
    return (
        np.array([[n for n, _ in points] for points in padded], dtype=np.int64),
        np.array([[y for _, y in points] for points in padded], dtype=np.float64),
    )


_FEW = 100


class Envelopes:
    """Rows of vertices, padded by repeating the last one; row 0 is empty (`NONE`)."""

    def __init__(self) -> None:
        self._rows: dict[tuple[tuple[int, ...], int], dict[int, int]] = {}  # by sizes and GPUs a node; by id of curve
        self._sizes: Ints = np.zeros((1, 1), dtype=np.int64)
        self._speeds: Floats = np.zeros((1, 1))
        # Kept as long as their rows: while a curve lives here its id cannot be given to another.
        self._curves: list[Curve] = []
        self._wanted: list[tuple[int, ...]] = []  # of the curves that have no row in the tables yet

    def __len__(self) -> int:
        return len(self._curves) + 1

    def row(self, curve: Curve, sizes: tuple[int, ...], per_node: int) -> int:
        """Where the envelope is, or will be once it is asked for."""
        if not curve:
            return NONE
        rows = self._rows.get((sizes, per_node))
        if rows is None:
            rows = self._rows[sizes, per_node] = {}
        row = rows.get(id(curve))
        if row is None:
            self._curves.append(curve)
            self._wanted.append(useful_sizes(sizes, per_node))
            row = rows[id(curve)] = len(self._curves)
        return row

    def of(self, rows: Ints) -> tuple[Ints, Floats]:
        """Sizes and speeds, one row a job."""
        if self._wanted:
            self._write()
        return self._sizes.take(rows, axis=0), self._speeds.take(rows, axis=0)

    def _write(self) -> None:
        """Add the rows that are new since the last time."""
        make = _few if len(self._wanted) < _FEW else _many
        sizes, speeds = make(self._curves[-len(self._wanted) :], self._wanted)
        width = max(self._sizes.shape[1], sizes.shape[1])
        self._sizes = np.concatenate([_wider(self._sizes, width), _wider(sizes, width)])
        self._speeds = np.concatenate([_wider(self._speeds, width), _wider(speeds, width)])
        self._wanted = []


def _wider(table: NDArray[Number], width: int) -> NDArray[Number]:
    missing = width - table.shape[1]
    return np.pad(table, ((0, 0), (0, missing)), mode="edge") if missing else table


def with_held(sizes: Ints, values: Floats, held: Ints, held_values: Floats) -> tuple[Ints, Floats]:
    """Add to each row's concave chain the point (held, held_value), and make it concave again.

    The held size is not discounted by a restart, so it stands out above its neighbours: those under the chords from it
    are dropped (left of it the last ones, right of it the first ones). A held point under the chain is left out.
    A dropped vertex repeats the one before it, or stands at zero: a step of no cost and no gain.
    """
    sizes, values = _inserted(sizes, values, held, held_values)
    at_held = sizes == held[:, None]
    peak = np.where(at_held, values, -np.inf).max(axis=1)[:, None]
    n, y = sizes.astype(np.float64), values
    slope_in = _slope(np.diff(y, axis=1, prepend=0.0), np.diff(n, axis=1, prepend=0.0))
    slope_out = np.hstack([slope_in[:, 1:], np.zeros((len(n), 1))])
    to_held = _slope(peak - y, held[:, None] - n)
    left_ok = slope_in > to_held
    right_ok = (to_held >= slope_out) & (y > peak)
    keep = np.where(at_held, y == peak, np.where(n < held[:, None], left_ok, right_ok))
    return _without(sizes, values, keep)


def _inserted(sizes: Ints, values: Floats, held: Ints, held_values: Floats) -> tuple[Ints, Floats]:
    """The chain with the held point where it lies above the chain; elsewhere the chain's own last vertex again."""
    width = sizes.shape[1]
    at = (sizes < held[:, None]).sum(axis=1)
    under = held_values <= chain_at(sizes, values, held, at) * (1 + 1e-12)
    n = np.where(under, sizes[:, -1], held)[:, None]
    y = np.where(under, values[:, -1], held_values)[:, None]
    at = np.where(under, width, at)[:, None]
    columns = np.arange(width + 1)[None, :]
    left_n, left_y = np.hstack([sizes, n]), np.hstack([values, y])
    right_n, right_y = np.hstack([n, sizes]), np.hstack([y, values])
    joined_n = np.where(columns < at, left_n, np.where(columns == at, n, right_n))
    joined_y = np.where(columns < at, left_y, np.where(columns == at, y, right_y))
    return joined_n, joined_y


def chain_at(sizes: Ints, values: Floats, held: Ints | Floats, at: Ints) -> Floats:
    """The chain's height at a size, which lies before vertex `at`."""
    right = np.minimum(at, sizes.shape[1] - 1)
    left = np.maximum(right - 1, 0)
    rows = np.arange(len(held))
    n0, y0 = np.where(right > 0, sizes[rows, left], 0), np.where(right > 0, values[rows, left], 0.0)
    n1, y1 = sizes[rows, right], values[rows, right]
    part = np.clip(_slope((held - n0).astype(np.float64), (n1 - n0).astype(np.float64)), 0.0, 1.0)
    return np.asarray(y0 + (y1 - y0) * part)


def _slope(dy: Floats, dn: Floats) -> Floats:
    return np.divide(dy, dn, out=np.zeros(np.broadcast(dy, dn).shape), where=dn != 0)


def _without(sizes: Ints, values: Floats, keep: NDArray[np.bool_]) -> tuple[Ints, Floats]:
    last_kept = np.maximum.accumulate(np.where(keep, np.arange(sizes.shape[1])[None, :], -1), axis=1)
    none = last_kept < 0
    at = np.maximum(last_kept, 0)
    return (
        np.where(none, 0, np.take_along_axis(sizes, at, axis=1)),
        np.where(none, 0.0, np.take_along_axis(values, at, axis=1)),
    )
