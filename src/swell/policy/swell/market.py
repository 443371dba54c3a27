"""A market for one GPU type: steps of all jobs, sorted by value per GPU, bought until nothing is left.

Each job offers a concave chain of (cost, value) points. Buying the steps in order of value per cost makes the sum of
values greatest, exact but for steps that do not fit whole. On a small cluster that may be a job that needs all of it:
where much could be gained, such a step is also tried first, unless it would delay those whose place it takes by more
than they delay it (Smith's rule). `vectorised` calls `buy`; `several_types` does so once for
each type. Costs are thousandths of a GPU, whole numbers: nothing is given twice for want of precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swell.policy._envelope import Floats, Ints, rises
from swell.policy.swell.settings import BETTER, FIRST_TRIES, WORTH_TRYING


class Offers:
    """One GPU type: for each job (row) the concave chain of costs and values. A step without cost is no step. At value
    v a job takes lengths / v seconds to its end; `weights` are of a second of its delay."""

    def __init__(self, costs: Ints, values: Floats, capacity: int, lengths: Floats, weights: Floats) -> None:
        self.costs, self.values, self.capacity = costs, values, capacity
        self.lengths, self.weights = lengths, weights
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
    value: float = 0.0  # the sum of what jobs get
    bound: float = 0.0  # no sale has a greater sum
    blocked: tuple[int, ...] = ()  # steps (as flat indices) that did not fit while something was left


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
    """Steps in order of value per cost, by the jobs that may take part (None: all); where steps did not fit, also with
    one of those taken first, if that makes the sum of values greater."""
    density = offer.density if who is None else np.where(who[:, None], offer.density, 0.0)
    in_order = best = _in_order(offer, density)
    if in_order.bound <= in_order.value * WORTH_TRYING:
        return best
    for at in in_order.blocked[:FIRST_TRIES]:
        trial = _in_order(offer, density, at)
        if trial.value > best.value * BETTER and _goes_first(offer, in_order, trial, at // offer.costs.shape[1]):
            best = trial
    return best


def _goes_first(offer: Offers, in_order: Shares, trial: Shares, job: int) -> bool:
    """Does the job delay those that get nothing because of it by less than they would delay it?"""
    pushed = ((in_order.vertex >= 0) & (trial.vertex < 0)).nonzero()[0]
    if not len(pushed):
        return True
    takes_s = offer.lengths[job] / offer.values[job, trial.vertex[job]]
    they_take_s = (offer.lengths[pushed] / offer.values[pushed, in_order.vertex[pushed]]).max()
    return bool(takes_s * offer.weights[pushed].sum() <= they_take_s * offer.weights[job])


def _in_order(offer: Offers, density: Floats, first: int | None = None) -> Shares:
    """Steps in order of value per cost. `first`: this one, and those before it of the same job, before all others."""
    width, capacity = offer.costs.shape[1], offer.capacity
    row, vertex = divmod(first, width) if first is not None else (0, -1)
    if first is not None:
        density = density.copy()
        density[row, : vertex + 1] = 0.0
        capacity -= int(offer.costs[row, vertex])
    flat = (density > 0).ravel().nonzero()[0]
    order = flat[(-density.take(flat)).argsort(kind="stable")]
    steps = offer.step.take(order)
    spent = steps.cumsum()
    whole = int(spent.searchsorted(capacity, side="right"))
    reached = np.full(len(density), -1, dtype=np.int64)
    np.maximum.at(reached, order[:whole] // width, order[:whole] % width)
    if first is not None:
        reached[row] = max(int(reached[row]), vertex)
    left = capacity - (int(spent[whole - 1]) if whole else 0)
    price = float(density.take(order[whole])) if whole < len(order) else 0.0
    bound, blocked = 0.0, tuple[int, ...]()
    if left and whole < len(order):
        bound = _value(offer, reached) + left * price
        left, blocked = _what_still_fits(order[whole:], steps[whole:], offer, reached, left)
    return Shares(reached, left, price, _value(offer, reached), bound, blocked)


def _value(offer: Offers, vertex: Ints) -> float:
    rows = (vertex >= 0).nonzero()[0]
    return float(offer.values[rows, vertex[rows]].sum())


def _what_still_fits(order: Ints, steps: Ints, offer: Offers, reached: Ints, left: int) -> tuple[int, tuple[int, ...]]:
    """After the first step that does not fit: later steps that do, unless an earlier one of the same job did not. What
    is left, and the first step of each job that did not fit though it could on its own."""
    blocked: dict[int, int] = {}
    width, costs = offer.costs.shape[1], offer.costs
    for at, step in zip(order.tolist(), steps.tolist(), strict=True):
        if left <= 0:
            break
        job = at // width
        if job in blocked:
            continue
        if step > left:
            blocked[job] = at
        else:
            reached[job] = at % width
            left -= step
    return left, tuple(at for at in blocked.values() if costs.item(at) <= offer.capacity)
