"""Envelopes and the market under `swell`, against brute force."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from swell.policy._envelope import Envelopes, envelope, useful_sizes, with_held
from swell.policy.swell.market import Offers, Outcome, buy
from swell.policy.swell.several_types import share_out, steps_above

Points = list[tuple[int, float]]


def hull_height(points: Points, n: float) -> float:
    """Brute force: the highest chord of any two points (and zero) over n."""
    points = [(0, 0.0), *points]
    heights = [y for m, y in points if m == n]
    for (a, ya), (b, yb) in itertools.combinations(points, 2):
        if a < n < b:
            heights.append(ya + (yb - ya) * (n - a) / (b - a))
    return max(heights)


def rising(rng: random.Random, most: int) -> tuple[float, ...]:
    steps = [rng.choice((0.0, rng.random())) for _ in range(most)]
    return (0.0, *itertools.accumulate(steps))


def test_the_envelope_is_the_highest_chord_everywhere() -> None:
    rng = random.Random(1)
    for _ in range(200):
        most = rng.randrange(1, 12)
        curve = rising(rng, most)
        sizes = tuple(sorted(rng.sample(range(1, most + 1), rng.randrange(1, most + 1))))
        vertices = envelope(curve, sizes)
        all_points = [(n, curve[n]) for n in sizes]
        for n, speed in vertices:
            assert speed == pytest.approx(hull_height(all_points, n))
        gains = np.diff([0.0, *(y for _, y in vertices)]) / np.diff([0, *(n for n, _ in vertices)])
        assert all(a > b > 0 for a, b in itertools.pairwise(gains.tolist()))


def test_the_held_size_makes_a_concave_chain_of_what_is_left() -> None:
    rng = random.Random(2)
    for _ in range(300):
        most = rng.randrange(1, 10)
        vertices = envelope(rising(rng, most), tuple(range(1, most + 1)))
        if not vertices:
            continue
        held, value = rng.randrange(1, most + 2), rng.random() * most
        sizes, values = with_held(
            np.array([[n for n, _ in vertices]]),
            np.array([[y for _, y in vertices]]),
            np.array([held]),
            np.array([value]),
        )
        chain = list(zip(sizes[0].tolist(), values[0].tolist(), strict=True))
        above = [(n, y) for n, y in [*vertices, (held, value)] if y > 0]
        for n, y in chain:
            if n:
                assert y == pytest.approx(max(hull_height(above, n), max(y for m, y in above if m <= n)))


def test_useful_sizes_pack_into_nodes_and_few_listed_ones_are_all_kept() -> None:
    assert useful_sizes(tuple(range(1, 17)), 4) == (1, 2, 4, 8, 12, 16)
    assert useful_sizes((3, 5, 7), 4) == (3, 5, 7)
    assert useful_sizes(tuple(range(3, 12)), 8) == (3, 4, 8, 11)
    assert useful_sizes((5,), 4) == (5,)


def test_rows_of_different_length_are_read_side_by_side() -> None:
    table = Envelopes()
    short = table.row((0.0, 1.0), (1,), 1)
    first, _ = table.of(np.array([short]))
    long = table.row((0.0, 1.0, 1.9, 2.7, 3.3), (1, 2, 3, 4), 1)
    sizes, speeds = table.of(np.array([short, long, 0]))
    assert first.tolist() == [[1]]
    assert sizes.tolist() == [[1, 1, 1, 1], [1, 2, 3, 4], [0, 0, 0, 0]]
    assert speeds[1].tolist() == [1.0, 1.9, 2.7, 3.3]
    assert table.of(np.array([table.row((0.0,), (1,), 1)]))[0].tolist() == [[0, 0, 0, 0]]
    assert table.row((), (1,), 1) == 0


def test_many_envelopes_at_once_are_the_same_as_one_by_one() -> None:
    """To the bit; with pauses, straight lines, curves that end early and jobs that get nowhere."""
    rng = random.Random(4)
    shapes = [rising(rng, rng.randrange(1, 40)) for _ in range(300)]
    shapes += [tuple(k * slope for k in range(41)) for slope in (0.0, 0.1, 1.0, 1 / 3)]
    table = Envelopes()
    wanted, rows = [], []
    for curve in shapes:
        sizes = tuple(sorted(rng.sample(range(1, 41), rng.randrange(1, 12))))
        wanted.append(envelope(curve, useful_sizes(sizes, 8)))
        rows.append(table.row(curve, sizes, 8))
    sizes_of, speeds_of = table.of(np.array(rows))
    for points, n, speed in zip(wanted, sizes_of.tolist(), speeds_of.tolist(), strict=True):
        padded = (points or [(0, 0.0)]) + [points[-1] if points else (0, 0.0)] * (len(n) - max(1, len(points)))
        assert list(zip(n, speed, strict=True)) == padded


def random_offers(rng: random.Random, jobs: int, types: int, *, unit: bool) -> list[Offers]:
    offers = []
    for _ in range(types):
        costs, values = np.zeros((jobs, 4), dtype=np.int64), np.zeros((jobs, 4))
        for row in range(jobs):
            steps = [1 if unit else rng.choice((1, 1, 2, 4)) for _ in range(4)]
            slopes = sorted((rng.random() for _ in range(4)), reverse=True)
            costs[row] = np.cumsum(steps)
            values[row] = np.cumsum([s * k for s, k in zip(slopes, steps, strict=True)])
        lengths = np.zeros(jobs)  # the same to all: nobody delays anybody
        offers.append(Offers(costs, values, rng.randrange(4, 4 * jobs + 4), lengths, np.ones(jobs)))
    return offers


def best_of_all(offers: list[Offers]) -> float:
    """Exhaustive dynamic programming over what is left of each type."""
    best = {tuple(offer.capacity for offer in offers): 0.0}
    for row in range(len(offers[0].costs)):
        after = dict(best)
        for left, value in best.items():
            for kind, offer in enumerate(offers):
                for cost, gain in zip(offer.costs[row].tolist(), offer.values[row].tolist(), strict=True):
                    if cost <= left[kind]:
                        rest = (*left[:kind], left[kind] - cost, *left[kind + 1 :])
                        after[rest] = max(after.get(rest, 0.0), value + gain)
        best = after
    return max(best.values())


def worth(offers: list[Offers], outcome: Outcome) -> float:
    total, spent = 0.0, [0] * len(offers)
    for row, (kind, vertex) in enumerate(zip(outcome.kind.tolist(), outcome.vertex.tolist(), strict=True)):
        if kind >= 0:
            total += float(offers[kind].values[row, vertex])
            spent[kind] += int(offers[kind].costs[row, vertex])
    assert [offer.capacity - s for offer, s in zip(offers, spent, strict=True)] == outcome.left
    assert min(outcome.left) >= 0
    return total


def test_one_type_in_steps_of_one_is_exact() -> None:
    rng = random.Random(3)
    for _ in range(100):
        offers = random_offers(rng, rng.randrange(1, 7), 1, unit=True)
        assert worth(offers, Outcome.of_one(buy(offers[0]))) == pytest.approx(best_of_all(offers))


def test_larger_steps_lose_no_more_than_the_last_one() -> None:
    rng = random.Random(4)
    gaps = []
    for _ in range(100):
        offers = random_offers(rng, rng.randrange(2, 8), 1, unit=False)
        best = best_of_all(offers)
        gaps.append(1 - worth(offers, Outcome.of_one(buy(offers[0]))) / best)
    assert np.mean(gaps) < 0.02


def test_several_types_come_close_to_the_optimum() -> None:
    rng = random.Random(5)
    gaps = []
    for _ in range(60):
        offers = random_offers(rng, rng.randrange(2, 9), 2, unit=False)
        best = best_of_all(offers)
        gaps.append(1 - worth(offers, share_out(offers)) / best)
    assert np.mean(gaps) < 0.03


def test_what_jobs_would_take_of_a_type_at_a_price_is_in_the_steps_above_what_they_have_elsewhere() -> None:
    """Demand at any price, from the steps, is what each job would choose by itself: the point of greatest surplus, if
    that is more than it has elsewhere. Steps after the first count too."""
    rng = random.Random(6)
    several = 0
    for _ in range(300):
        (offer,) = random_offers(rng, rng.randrange(1, 6), 1, unit=False)
        floor = np.array([rng.choice((0.0, rng.random())) for _ in offer.costs])
        price = rng.uniform(0.0, 2.0) * float(offer.density.max()) / 2
        density, cost = steps_above(offer, floor)
        wanted = 0
        for costs, values, elsewhere in zip(offer.costs.tolist(), offer.values.tolist(), floor.tolist(), strict=True):
            points = [(value - price * c, c) for c, value in zip(costs, values, strict=True) if c]
            surplus, chosen = max(points, default=(0.0, 0))
            wanted += chosen if surplus > elsewhere else 0
        assert int(cost[density > price].sum()) == wanted
        several += int((density > price).sum()) > len(floor)
    assert several > 10, "no case in which a job takes more than one step"
