"""Sharing out GPUs of several types so that the sum of values is greatest: prices, then whole sizes.

Each job offers, for every GPU type, a concave chain of (cost, value) points, and takes one point of one type or none.
One type: steps of all chains, sorted by value per GPU, bought until nothing is left. That is exact but for the last
step, which may not fit whole. Several types: each type's price is found in turn with the other prices fixed (a job's
best surplus elsewhere is what it gives up by coming here, so its chain starts from that height), a few rounds of that;
then each job goes where its surplus is greatest, each type is shared out as if it were alone, and the closest choices
are tried the other way round. O(jobs × vertices × types × rounds), all of it in numpy.

Costs are thousandths of a GPU, whole numbers: nothing is ever given twice for want of precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swell.policy._envelope import Floats, Ints, rises

ROUNDS = 6
HALVINGS = 40
TRIES = 12
"""How many of the closest choices of type are tried the other way round."""
MANY = 1024
"""With more jobs than this one job's type is no matter, and the tries are left out."""


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

    def steps_above(self, floor: Floats) -> tuple[Floats, Ints]:
        """Value per cost and cost of the steps that jobs who have `floor` elsewhere would take, in no order: the first
        step of each is the tangent from there."""
        ratio = self.values - floor[:, None]
        np.divide(ratio, self.costs, out=ratio, where=self.usable)
        np.copyto(ratio, -1.0, where=~self.usable)
        first = np.argmax(ratio, axis=1)
        rows = np.arange(len(first))
        tangent = ratio[rows, first]
        begun = tangent > 0
        later = (np.arange(self.costs.shape[1])[None, :] > first[:, None]) & (self.density > 0)
        return (
            np.concatenate([tangent[begun], self.density[later]]),
            np.concatenate([self.costs[rows, first][begun], self.step[later]]),
        )


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


def share_out(offers: list[Offers]) -> Outcome:
    """Give out all types at once."""
    jobs = len(offers[0].costs)
    if len(offers) == 1:
        shares = [_buy(offers[0])]
        kind = np.zeros(jobs, dtype=np.int64)
    else:
        surplus = _surplus_at(offers, _prices(offers))
        kind = np.argmax(surplus, axis=0)
        shares = _each_alone(offers, kind)
        if jobs <= MANY:
            kind, shares = _second_thoughts(offers, kind, shares, surplus)
    return _outcome(kind, shares)


def _outcome(kind: Ints, shares: list[Shares]) -> Outcome:
    vertex = np.choose(kind, [s.vertex for s in shares]) if len(shares) > 1 else shares[0].vertex
    return Outcome(
        kind=np.where(vertex >= 0, kind, -1),
        vertex=vertex,
        left=[s.left for s in shares],
        prices=np.array([s.price for s in shares]),
    )


def _buy(offer: Offers, who: NDArray[np.bool_] | None = None) -> Shares:
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


def _price(offer: Offers, floor: Floats) -> float:
    """The price at which what jobs want of this type is what there is, if they have `floor` elsewhere."""
    density, step = offer.steps_above(floor)
    order = np.argsort(-density)
    spent = np.cumsum(step[order])
    if not len(spent) or spent[-1] <= offer.capacity:
        return 0.0
    marginal = float(density[order[np.searchsorted(spent, offer.capacity, side="right")]])
    low, high = 0.0, float(density[order[0]])
    for _ in range(HALVINGS):  # a little above the first step that there is not enough for
        middle = (low + high) / 2
        low, high = (middle, high) if marginal > middle else (low, middle)
    return high


def _prices(offers: list[Offers]) -> Floats:
    """Prices at which demand meets capacity for each type, the others' prices given; a few rounds over the types."""
    prices = np.zeros(len(offers))
    surplus = np.zeros((len(offers), len(offers[0].costs)))
    for _ in range(ROUNDS):
        before = prices.copy()
        for kind, offer in enumerate(offers):
            others = np.delete(surplus, kind, axis=0).max(axis=0)
            prices[kind] = _price(offer, others)
            surplus[kind] = _surplus(offer, prices[kind])
        if np.allclose(before, prices, rtol=0.01, atol=0.0):
            break
    return prices


def _surplus(offer: Offers, price: float) -> Floats:
    """The best a job could have here at this price; 0 when it is better off without."""
    return np.asarray(np.maximum((offer.values - price * offer.costs).max(axis=1), 0.0))


def _surplus_at(offers: list[Offers], prices: Floats) -> Floats:
    """As `_surplus`, but never rounded to nothing: of two types that are both too dear, the less dear is told apart."""
    return np.stack([_best_at(offer, price) for offer, price in zip(offers, prices.tolist(), strict=True)])


def _best_at(offer: Offers, price: float) -> Floats:
    return np.asarray(np.where(offer.usable, offer.values - price * offer.costs, -np.inf).max(axis=1))


def _each_alone(offers: list[Offers], kind: Ints) -> list[Shares]:
    return [_buy(offer, kind == index) for index, offer in enumerate(offers)]


def _second_thoughts(
    offers: list[Offers], kind: Ints, shares: list[Shares], surplus: Floats
) -> tuple[Ints, list[Shares]]:
    """Try the other type for the jobs that were closest to choosing it (and for those that got nothing)."""
    total = [_worth(o, s) for o, s in zip(offers, shares, strict=True)]
    for job, other in _closest(kind, shares, surplus):
        was = int(kind[job])
        trial = kind.copy()
        trial[job] = other
        fresh = {i: _buy(offers[i], trial == i) for i in (was, other)}
        worth = {i: _worth(offers[i], s) for i, s in fresh.items()}
        if sum(worth.values()) > (total[was] + total[other]) * (1 + 1e-9):
            kind = trial
            for i, s in fresh.items():
                shares[i], total[i] = s, worth[i]
    return kind, shares


def _closest(kind: Ints, shares: list[Shares], surplus: Floats) -> list[tuple[int, int]]:
    """(job, other type) by how little it would lose at the going prices; those without anything first."""
    jobs = np.arange(len(kind))
    vertex = np.choose(kind, [s.vertex for s in shares])
    usable = np.isfinite(surplus)
    usable[kind, jobs] = False
    loss = np.where(usable, surplus[kind, jobs][None, :], np.inf)
    np.subtract(loss, surplus, out=loss, where=usable)
    loss = np.where(vertex[None, :] < 0, loss - np.abs(loss).max(where=usable, initial=0.0), loss)
    order = np.argsort(loss, axis=None, kind="stable")[:TRIES]
    return [(int(at) % len(kind), int(at) // len(kind)) for at in order if np.isfinite(loss.ravel()[at])]


def _worth(offer: Offers, shares: Shares) -> float:
    rows = np.flatnonzero(shares.vertex >= 0)
    return float(offer.values[rows, shares.vertex[rows]].sum())
