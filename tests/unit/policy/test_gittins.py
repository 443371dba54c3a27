"""The rank of a job of unknown length, against its definition."""

from __future__ import annotations

from math import exp, log
from statistics import NormalDist

import pytest

from swell.policy._gittins import lasting_rank_s, rank_s


def _by_definition(median_s: float, sigma: float, done_s: float) -> float:
    """From many lengths beyond what is done, drawn evenly, over how far to go."""
    normal = NormalDist()
    ended = normal.cdf(log(max(done_s, 1e-9) / median_s) / sigma)
    evenly = (ended + (1 - ended) * (i + 0.5) / 40_000 for i in range(40_000))
    left = [median_s * exp(sigma * normal.inv_cdf(part)) - done_s for part in evenly]
    best, spent_s = float("inf"), 0.0
    for ended, d_s in enumerate(left, start=1):
        spent_s += d_s
        if ended >= 100:  # fewer are noise
            best = min(best, (spent_s + d_s * (len(left) - ended)) / ended)
    return best


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("done_s", [0.0, 200.0, 2000.0])
def test_it_is_the_least_investment_for_each_chance_of_an_end(sigma: float, done_s: float) -> None:
    assert float(rank_s(600.0, sigma, done_s)) == pytest.approx(_by_definition(600.0, sigma, done_s), rel=0.12)


def test_a_job_that_has_just_come_ranks_before_one_that_has_run_for_long() -> None:
    ranks = [float(rank_s(600.0, 2.0, done_s)) for done_s in (100.0, 1000.0, 10_000.0, 100_000.0)]
    assert ranks == sorted(ranks)
    assert float(rank_s(600.0, 2.0, 0.0)) < 600.0


def test_a_length_that_is_nearly_known_ranks_as_what_is_left_of_it() -> None:
    assert float(rank_s(600.0, 0.05, 0.0)) == pytest.approx(600.0, rel=0.1)
    assert float(rank_s(600.0, 0.05, 400.0)) == pytest.approx(200.0, rel=0.25)


def test_ranks_last_until_twice_as_much_is_done() -> None:
    at = {done_s: float(lasting_rank_s(600.0, 2.0, done_s, 600.0)) for done_s in (620, 900, 1190, 1210, 2300)}
    assert at[620] == at[900] == at[1190] < at[1210] == at[2300]
