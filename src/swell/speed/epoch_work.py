"""The work of an epoch, early and late in training, learned from jobs of one family.

Epochs of one job may differ in work: caches fill, batches contribute more later, data is added. Each report has the
work of an epoch in its part of training, relative to the first report of its job. Parts are finer at the beginning,
where epochs change most. `speed.remaining` uses it for jobs that have reported only a few epochs: their own reports
give the scale, the family gives the course. The size of earlier members does not matter.

In parts that no member of the family has reached, the course continues like the median of other families, step by step
from cell to cell (the chain ladder of insurers).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from math import exp, log
from statistics import median

import numpy as np

from swell.speed.recent_median import RecentMedian

CELLS = 12
FINE = 99.0
"""The last cell is about a third of training, the first a two-hundredth."""
EDGES: tuple[float, ...] = tuple(((1.0 + FINE) ** (cell / CELLS) - 1.0) / FINE for cell in range(CELLS + 1))
WIDTHS = tuple(high - low for low, high in pairwise(EDGES))
CENTRES = tuple((low + high) / 2.0 for low, high in pairwise(EDGES))
STEEPEST = 1e4
"""Epochs that differ by more than this come from wrong clocks."""
FLAT: tuple[float, ...] = (0.0,) * CELLS


class EpochWork:
    __slots__ = ("_by_cell", "_levels", "_usual")

    def __init__(self, usual: Sequence[float] = FLAT) -> None:
        self._usual = usual
        self._by_cell: dict[int, RecentMedian] = {}  # log of the work of an epoch, relative to its job's first report
        self._levels: list[float] | None = None  # of every cell, computed on demand

    def __copy__(self) -> EpochWork:
        other = EpochWork(self._usual)
        other._levels = list(self._filled())
        return other

    def add(self, cells: Iterable[int], relative: float) -> None:
        """An epoch was this much work while training passed the middle of these cells."""
        if 1.0 / STEEPEST < relative < STEEPEST:
            for cell in cells:
                self._add(cell, log(relative))
            self._levels = None

    def _add(self, cell: int, level: float) -> None:
        known = self._by_cell.get(cell)
        if known is None:
            self._by_cell[cell] = RecentMedian(level)
        else:
            known.add(level)

    def follow(self, usual: Sequence[float]) -> None:
        """Use this course (logarithms by cell) in cells that no member has reached."""
        self._usual, self._levels = usual, None

    def at(self, part: float) -> float:
        """The work of an epoch at this part of training, relative to one at the beginning."""
        return self._filled()[cell_of(part)]

    def between(self, begin: float, end: float) -> float:
        """The work from one part of training to another, in units of first epochs, for a training of one epoch."""
        levels, first, last = self._filled(), cell_of(begin), cell_of(end)
        if last <= first:
            return max(0.0, end - begin) * levels[first]
        work = (EDGES[first + 1] - begin) * levels[first]
        for cell in range(first + 1, last):
            work += WIDTHS[cell] * levels[cell]
        return work + (end - EDGES[last]) * levels[last]

    def step(self, cell: int) -> float | None:
        """The change from the cell before to this one, as logarithm; None if one of them has no measurement."""
        before, here = self._by_cell.get(cell - 1), self._by_cell.get(cell)
        return here.typical - before.typical if before is not None and here is not None else None

    def _filled(self) -> list[float]:
        """Work by cell: as measured in known cells, elsewhere by the usual course from the nearest known ones."""
        if self._levels is None:
            known = sorted(self._by_cell)
            beyond = [self._by_cell[cell].typical - self._usual[cell] for cell in known]
            over = np.interp(range(CELLS), known, beyond).tolist() if known else FLAT
            self._levels = [exp(a + b) for a, b in zip(over, self._usual, strict=True)]
        return self._levels


def middles(begin: float, end: float) -> range:
    """Cells whose middle lies between these parts of training, so that a whole training has each once."""
    return range(bisect_right(CENTRES, begin), bisect_right(CENTRES, end))


def cell_of(part: float) -> int:
    return min(CELLS - 1, max(0, bisect_right(EDGES, part) - 1))


def usual_course(courses: Iterable[EpochWork]) -> tuple[float, ...]:
    """Logarithms by cell, from the steps of all families; shrunk if there are few."""
    known = list(courses)
    steps = [[found for course in known if (found := course.step(cell)) is not None] for cell in range(1, CELLS)]
    return tuple(accumulate((_cautious(found) for found in steps), initial=0.0))


def _cautious(steps: list[float]) -> float:
    return median(steps) * len(steps) / (len(steps) + 1.0) if steps else 0.0
