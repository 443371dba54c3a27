"""A market for one GPU type: steps of all jobs, sorted by value per GPU, bought until nothing is left.

Each job offers a concave chain of (cost, value) points. Buying the steps in order of value per cost makes the sum of
values greatest, exact but for the last step, which may not fit whole. `vectorised` calls `buy`; `several_types` does so
once for each type. Costs are thousandths of a GPU, whole numbers: nothing is given twice for want of precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swell.policy._envelope import Floats, Ints, rises


class Offers:
    """One GPU type: for each job (row) the concave chain of costs and values. A step without cost is no step."""

    def __init__(self, costs: Ints, values: Floats, capacity: int) -> None:
        self.costs, self.values, self.capacity = costs, values, capacity
        self.usable = costs > 0
        self.step = rises(costs)
        gain = rises(values)
        real = self.step > 0
        density = np.divide(gain, self.step, out=np.full(values.shape, np.inf), where=real)
        # Rounding must not put a later step of a job before an earlier one.
        self.density = np.where(real, np.minimum.accumulate(density, axis=1), 0.0)


@dataclass(slots=True)
class Shares:
    """Who gets what of one type: `vertex` (−1: nothing) of each job, what is left, and the price of a thousandth."""

    vertex: Ints
    left: int
    price: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """`kind`: the index of the GPU type each job got, −1 for none; `vertex`: which point of its chain there."""

    kind: Ints
    vertex: Ints
    left: list[int]
    prices: Floats

    @classmethod
    def of_one(cls, shares: Shares) -> Outcome:
        return cls(
            kind=np.where(shares.vertex >= 0, 0, -1),
            vertex=shares.vertex,
            left=[shares.left],
            prices=np.array([shares.price]),
        )


def buy(offer: Offers, who: NDArray[np.bool_] | None = None) -> Shares:
    """Steps in order of value per cost, by the jobs that may take part (None: all)."""
    width = offer.costs.shape[1]
    density = offer.density if who is None else np.where(who[:, None], offer.density, 0.0)
    flat = (density > 0).ravel().nonzero()[0]
    order = flat[(-density.take(flat)).argsort(kind="stable")]
    steps = offer.step.take(order)
    spent = steps.cumsum()
    whole = int(spent.searchsorted(offer.capacity, side="right"))
    reached = np.full(len(density), -1, dtype=np.int64)
    np.maximum.at(reached, order[:whole] // width, order[:whole] % width)
    left = offer.capacity - (int(spent[whole - 1]) if whole else 0)
    price = float(density.take(order[whole])) if whole < len(order) else 0.0
    if left:
        left = _what_still_fits(order[whole:], steps[whole:], width, reached, left)
    return Shares(vertex=reached, left=left, price=price)


def _what_still_fits(order: Ints, steps: Ints, width: int, reached: Ints, left: int) -> int:
    """After the first step that does not fit: later steps that do, unless an earlier one of the same job did not."""
    blocked: dict[int, None] = {}
    for at, step in zip(order.tolist(), steps.tolist(), strict=True):
        if left <= 0:
            break
        job = at // width
        if job in blocked:
            continue
        if step > left:
            blocked[job] = None
        else:
            reached[job] = at % width
            left -= step
    return left
