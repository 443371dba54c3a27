"""What several GPU types add to the policy: where a job goes, what a move costs, and who would be late on a slow type.

`vectorised` calls these; with one type the first two change nothing and `share_out` is not called.

Sharing out: each type's price is found in turn with the other prices fixed (a job's best surplus elsewhere is what it
gives up by coming here, so its chain starts from that height), a few rounds of that; then each job goes where its
surplus is greatest, each type is sold as if it were alone, and the closest choices are tried the other way round.
O(jobs × vertices × types × rounds), in numpy.
"""

from __future__ import annotations

import numpy as np

from swell.policy._envelope import Floats, Ints
from swell.policy.swell.columns import Columns
from swell.policy.swell.market import Offers, Outcome, Shares, buy
from swell.policy.swell.settings import PROMISED, THERE_AND_BACK

ROUNDS = 6
HALVINGS = 40
TRIES = 12
"""How many of the closest choices of type are tried the other way round."""
MANY = 1024
"""With more jobs than this one job's type is no matter, and the tries are left out."""


def move_charge(columns: Columns, kind: int, left_s: Floats, stop_cost_s: Floats, horizon_s: float) -> Floats:
    """What a running job's values on a type that it does not hold are divided by: a move is soon taken back. A job that
    will have ended by then is not moved back."""
    away = (columns.held > 0) & (columns.held_kind != kind)
    stays_s = np.minimum(left_s / np.maximum(columns.speeds[kind][:, -1], 1e-9), horizon_s)
    return np.where(away, 1.0 + THERE_AND_BACK * stop_cost_s * stays_s / horizon_s**2, 1.0)


def promised(values: Floats, needed: Floats | None) -> Floats:
    """What speeds are worth to jobs: more up to the speed they need than beyond it. What is concave stays so."""
    if needed is None:
        return values
    return np.asarray(values + PROMISED * np.minimum(values.T, needed).T)


def share_out(offers: list[Offers]) -> Outcome:
    """Give out all types at once: at least two."""
    surplus = _surplus_at(offers, _prices(offers))
    kind = np.argmax(surplus, axis=0)
    shares = _each_alone(offers, kind)
    if len(kind) <= MANY:
        kind, shares = _second_thoughts(offers, kind, shares, surplus)
    return _outcome(kind, shares)


def _outcome(kind: Ints, shares: list[Shares]) -> Outcome:
    vertex = np.choose(kind, [s.vertex for s in shares])
    return Outcome(
        kind=np.where(vertex >= 0, kind, -1),
        vertex=vertex,
        left=[s.left for s in shares],
        prices=np.array([s.price for s in shares]),
    )


def steps_above(offer: Offers, floor: Floats) -> tuple[Floats, Ints]:
    """Value per cost, and cost, of the steps that jobs would take here that have the surplus `floor` elsewhere. In no
    order; the first step of each job is the tangent from that height."""
    ratio = offer.values - floor[:, None]
    np.divide(ratio, offer.costs, out=ratio, where=offer.usable)
    np.copyto(ratio, -1.0, where=~offer.usable)
    first = np.argmax(ratio, axis=1)
    rows = np.arange(len(first))
    tangent = ratio[rows, first]
    begun = tangent > 0
    later = (np.arange(offer.costs.shape[1])[None, :] > first[:, None]) & (offer.density > 0)
    return (
        np.concatenate([tangent[begun], offer.density[later]]),
        np.concatenate([offer.costs[rows, first][begun], offer.step[later]]),
    )


def _price(offer: Offers, floor: Floats) -> float:
    """The price at which what jobs want of this type is what there is, if they have `floor` elsewhere."""
    density, step = steps_above(offer, floor)
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
    """As `_surplus`, but negative where a job is better off without: of two types that cost too much the closer one."""
    return np.stack([_best_at(offer, price) for offer, price in zip(offers, prices.tolist(), strict=True)])


def _best_at(offer: Offers, price: float) -> Floats:
    return np.asarray(np.where(offer.usable, offer.values - price * offer.costs, -np.inf).max(axis=1))


def _each_alone(offers: list[Offers], kind: Ints) -> list[Shares]:
    return [buy(offer, kind == index) for index, offer in enumerate(offers)]


def _second_thoughts(
    offers: list[Offers], kind: Ints, shares: list[Shares], surplus: Floats
) -> tuple[Ints, list[Shares]]:
    """Try the other type for the jobs that were closest to choosing it (and for those that got nothing)."""
    total = [share.value for share in shares]
    for job, other in _closest(kind, shares, surplus):
        was = int(kind[job])
        trial = kind.copy()
        trial[job] = other
        fresh = {i: buy(offers[i], trial == i) for i in (was, other)}
        value = {i: s.value for i, s in fresh.items()}
        if sum(value.values()) > (total[was] + total[other]) * (1 + 1e-9):
            kind = trial
            for i, s in fresh.items():
                shares[i], total[i] = s, value[i]
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
