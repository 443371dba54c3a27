"""Upper concave envelopes of speed curves, kept as rows of one padded table so that thousands are handled at once.

A greedy that buys the best gain per GPU is exact on a concave curve. Real curves are not concave: a size that needs one
more node may bring nothing. So each curve is replaced by the sizes on its upper envelope, and only those are bought.
Envelopes are cached by the identity of the curve (the same object as long as nothing was learned).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def envelopes(sizes: Floats, speeds: Floats) -> tuple[Ints, Floats]:
    """As `envelope`, for many rows at once and in the same steps: the vertices, padded by repeating the last one.

    Points of speed 0 are no points: rows are filled up with them.
    """
    count, width = sizes.shape
    stacks = np.zeros((2, width + 1, count))  # sizes and speeds, vertex by vertex
    top = np.zeros(count, dtype=np.int64)
    before, last = np.zeros((2, count)), np.zeros((2, count))  # the two topmost vertices
    for point in np.stack([sizes.T, speeds.T], axis=1):
        rises = point[1] > last[1]
        under = np.flatnonzero(rises & (top > 0) & _all_under(before, last, point))
        if len(under):
            _pop(stacks, top, under, point)
            last[:, under] = stacks[:, top[under], under]
        np.copyto(before, last, where=rises)
        np.copyto(last, point, where=rises)
        top += rises
        rows = np.flatnonzero(rises)
        stacks[:, top[rows], rows] = point[:, rows]
    filled = np.minimum(np.arange(1, max(2, int(top.max(initial=0)) + 1))[:, None], top)
    found = stacks[:, filled, np.arange(count)[None, :]]
    return found[0].T.astype(np.int64), found[1].T


def _all_under(a: Floats, b: Floats, c: Floats) -> NDArray[np.bool_]:
    """As `_under`, for rows of points."""
    return np.asarray((b[1] - a[1]) * (c[0] - b[0]) <= (c[1] - b[1]) * (b[0] - a[0]))


def _pop(stacks: Floats, top: Ints, rows: Ints, point: Floats) -> None:
    """Take the last vertex off these rows, and those before it that are under the chord to the point too."""
    while len(rows):
        top[rows] -= 1
        rows = rows[top[rows] > 0]
        at = top[rows]
        rows = rows[_all_under(stacks[:, at - 1, rows], stacks[:, at, rows], point[:, rows])]


class _Group:
    """Curves that are read at the same sizes."""

    __slots__ = ("_pick", "rows", "sizes")

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes
        self.rows: dict[int, int] = {}  # by id of curve
        self._pick: Callable[[Curve], tuple[float, ...]] = itemgetter(0, *sizes)  # 0, so that it always is a tuple

    def speeds(self, curve: Curve) -> Sequence[float]:
        last = len(curve) - 1
        if last < self.sizes[-1]:
            return [curve[min(n, last)] for n in self.sizes]
        return self._pick(curve)[1:]


def _many(curves: list[Curve], groups: list[_Group]) -> tuple[Ints, Floats]:
    """Envelopes of curves at the sizes of their group."""
    counts = np.fromiter((len(group.sizes) for group in groups), np.int64, len(groups))
    filled = np.arange(int(counts.max()))[None, :] < counts[:, None]
    sizes, speeds = np.zeros(filled.shape), np.zeros(filled.shape)
    sizes[filled] = np.fromiter(chain.from_iterable(group.sizes for group in groups), np.float64)
    read = (group.speeds(curve) for curve, group in zip(curves, groups, strict=True))
    speeds[filled] = np.fromiter(chain.from_iterable(read), np.float64)
    return envelopes(sizes, speeds)


def _few(curves: list[Curve], groups: list[_Group]) -> tuple[Ints, Floats]:
    """The same, one by one: for a few that is faster."""
    found = [envelope(curve, group.sizes) or [(0, 0.0)] for curve, group in zip(curves, groups, strict=True)]
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
        self._groups: dict[tuple[tuple[int, ...], int], _Group] = {}  # by sizes and GPUs per node
        self._sizes: Ints = np.zeros((1, 1), dtype=np.int64)  # with room for more rows
        self._speeds: Floats = np.zeros((1, 1))
        # Kept as long as their rows: while a curve lives here its id cannot be given to another.
        self._curves: list[Curve] = []
        self._fresh: list[_Group] = []  # of the curves that have no row in the tables yet

    def __len__(self) -> int:
        return len(self._curves) + 1

    def row(self, curve: Curve, sizes: tuple[int, ...], per_node: int) -> int:
        """Where the envelope is, or will be once it is asked for."""
        if not curve:
            return NONE
        group = self._groups.get((sizes, per_node))
        if group is None:
            group = self._groups[sizes, per_node] = _Group(useful_sizes(sizes, per_node))
        row = group.rows.get(id(curve))
        if row is None:
            self._curves.append(curve)
            self._fresh.append(group)
            row = group.rows[id(curve)] = len(self._curves)
        return row

    def of(self, rows: Ints) -> tuple[Ints, Floats]:
        """Sizes and speeds, one row per job."""
        if self._fresh:
            self._write()
        return self._sizes.take(rows, axis=0), self._speeds.take(rows, axis=0)

    def _write(self) -> None:
        """Add the rows that are new since the last time."""
        make = _few if len(self._fresh) < _FEW else _many
        sizes, speeds = make(self._curves[-len(self._fresh) :], self._fresh)
        first = len(self) - len(self._fresh)
        self._sizes = _with_rows(self._sizes, first, sizes)
        self._speeds = _with_rows(self._speeds, first, speeds)
        self._fresh = []


def _with_rows(table: NDArray[Number], first: int, rows: NDArray[Number]) -> NDArray[Number]:
    """The table with these rows from `first` on; another, with room to spare, if it is too small."""
    needed, width = first + len(rows), max(table.shape[1], rows.shape[1])
    if needed > len(table) or width > table.shape[1]:
        larger = np.zeros((max(needed, 2 * len(table)), width), dtype=table.dtype)
        larger[:first] = _wider(table[:first], width)
        table = larger
    table[first:needed] = _wider(rows, width)
    return table


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
    held = held[:, None]
    at_held = sizes == held
    peak = np.maximum.reduce(np.where(at_held, values, -np.inf), axis=1)[:, None]
    slope_in = _slope(rises(values), rises(sizes))
    slope_out = np.zeros(values.shape)
    slope_out[:, :-1] = slope_in[:, 1:]
    to_held = _slope(peak - values, held - sizes)
    left_ok = slope_in > to_held
    right_ok = (to_held >= slope_out) & (values > peak)
    keep = np.where(at_held, values == peak, np.where(sizes < held, left_ok, right_ok))
    return _without(sizes, values, keep)


def rises(chain: NDArray[Number]) -> NDArray[Number]:
    """From vertex to vertex of each row, the first from zero: `np.diff(chain, prepend=0)` in a fifth of the time."""
    rise = chain.copy()
    rise[:, 1:] -= chain[:, :-1]
    return rise


def _inserted(sizes: Ints, values: Floats, held: Ints, held_values: Floats) -> tuple[Ints, Floats]:
    """The chain with the held point where it lies above the chain; elsewhere the chain's own last vertex again."""
    rows, width = sizes.shape
    at = (sizes < held[:, None]).sum(axis=1)
    under = held_values <= chain_at(sizes, values, held, at) * (1 + 1e-12)
    n = np.where(under, sizes[:, -1], held)
    y = np.where(under, values[:, -1], held_values)
    at = np.where(under, width, at)[:, None]
    columns = np.arange(width + 1)
    source = np.where(columns == at, width, columns - (columns > at)) + (width + 1) * np.arange(rows)[:, None]
    joined_n = np.concatenate([sizes, n[:, None]], axis=1).take(source)
    joined_y = np.concatenate([values, y[:, None]], axis=1).take(source)
    return joined_n, joined_y


def chain_at(sizes: Ints, values: Floats, n: Ints | Floats, at: Ints) -> Floats:
    """Heights of the chains at sizes that lie before vertex `at`: one a chain, or several (down; chains across)."""
    rows, width = sizes.shape
    right = np.minimum(at, width - 1)
    first = right == 0
    right += width * np.arange(rows)
    n1, y1 = sizes.take(right), values.take(right)
    right -= 1  # what is read of the row before at its first vertex is not used
    n0, y0 = np.where(first, 0, sizes.take(right)), np.where(first, 0.0, values.take(right))
    part = np.minimum(np.maximum(_slope(n - n0, n1 - n0), 0.0), 1.0)
    return np.asarray(y0 + (y1 - y0) * part)


def _slope(dy: Ints | Floats, dn: Ints | Floats) -> Floats:
    """0 where nothing is between."""
    return np.divide(dy, dn, out=np.zeros(dy.shape), where=dn != 0)


def _without(sizes: Ints, values: Floats, keep: NDArray[np.bool_]) -> tuple[Ints, Floats]:
    rows, width = sizes.shape
    last_kept = np.maximum.accumulate(np.where(keep, np.arange(width), -1), axis=1)
    some = last_kept >= 0
    source = np.maximum(last_kept, 0) + width * np.arange(rows)[:, None]
    return sizes.take(source) * some, np.where(some, values.take(source), 0.0)
