"""Lengths as distributions: each source weighs as much as it was right so far."""

from __future__ import annotations

import random
from math import exp, log

import pytest

from swell.speed.lengths import PRIOR_MEDIAN_S, PRIOR_SIGMA, Length, Lengths


def _seen(*, families_mean: bool, jobs: int = 100, estimates_off: float = 0.0) -> Lengths:
    rng = random.Random(1)
    lengths = Lengths()
    for job in range(jobs):
        family = job % 5
        work_s = exp(4 + family + rng.gauss(0, 0.1)) if families_mean else exp(6 + rng.gauss(0, 2))
        estimate_s = work_s * exp(rng.gauss(0, log(estimates_off))) if estimates_off else 0.0
        lengths.saw(job, f"f{family}", work_s, estimate_s)
    return lengths


def test_before_anything_was_seen_the_prior() -> None:
    found = Lengths().of("any")
    assert found.median_s == pytest.approx(PRIOR_MEDIAN_S)
    assert found.sigma == pytest.approx(PRIOR_SIGMA)


def test_a_family_whose_members_are_alike_says_how_long_the_next_is() -> None:
    found = _seen(families_mean=True).of("f4")
    assert found.median_s == pytest.approx(exp(8), rel=0.3)
    assert found.sigma < 0.6


def test_a_family_whose_members_have_nothing_in_common_says_nothing() -> None:
    lengths = _seen(families_mean=False)
    found = lengths.of("f4")
    assert found.median_s == pytest.approx(lengths.of("never seen").median_s, rel=0.5)
    assert found.sigma > 1.5


def test_good_estimates_are_believed_and_wild_ones_are_not() -> None:
    good = _seen(families_mean=False, estimates_off=1.2).of("f0", 50_000.0)
    wild = _seen(families_mean=False, estimates_off=100.0).of("f0", 50_000.0)
    assert good.median_s > 25_000.0
    assert wild.median_s < 5_000.0
    assert good.sigma < wild.sigma


def test_the_longer_it_has_run_the_more_is_expected_to_be_left() -> None:
    length = Length(600.0, 2.0)
    assert length.left_s(0.0) == pytest.approx(600.0)
    assert length.left_s(60_000.0) > length.left_s(6_000.0) > length.left_s(600.0) > 600.0


def test_quantiles_of_what_is_left_hold_as_many_as_they_say() -> None:
    rng, length = random.Random(2), Length(600.0, 1.5)
    left = [total - 900.0 for _ in range(20_000) if (total := rng.lognormvariate(log(600.0), 1.5)) > 900.0]
    for part in (0.1, 0.5, 0.9):
        bound_s = length.left_s(900.0, part)
        assert sum(one <= bound_s for one in left) / len(left) == pytest.approx(part, abs=0.02)


def test_a_length_that_becomes_known_better_replaces_what_was_seen_of_the_job() -> None:
    lengths, once = Lengths(), Lengths()
    lengths.saw(1, "f", 10.0, 0.0)
    lengths.saw(1, "f", 1000.0, 0.0)
    once.saw(1, "f", 1000.0, 0.0)
    assert lengths.of("f") == once.of("f")


def _by_epochs(*, say: bool) -> Lengths:
    """One family, passes over its data from 3 to 300, each of 10 s; or lengths that have nothing to do with them."""
    rng, lengths = random.Random(3), Lengths()
    for job in range(60):
        epochs = round(exp(rng.uniform(log(3), log(300))))
        work_s = 10.0 * (epochs if say else exp(rng.uniform(log(3), log(300)))) * exp(rng.gauss(0, 0.1))
        lengths.saw(job, "f", work_s, 0.0, epochs)
    return lengths


def test_members_whose_epochs_are_alike_say_how_long_one_with_more_epochs_is() -> None:
    short, long = (_by_epochs(say=True).of("f", epochs=epochs) for epochs in (5, 200))
    assert short.median_s == pytest.approx(50.0, rel=0.5)
    assert long.median_s == pytest.approx(2000.0, rel=0.5)
    assert long.sigma < 0.8


def test_numbers_of_epochs_that_say_nothing_are_not_believed() -> None:
    lengths = _by_epochs(say=False)
    assert lengths.of("f", epochs=200) == lengths.of("f", epochs=5) == lengths.of("f")


def test_what_was_seen_changes_answers_when_there_is_enough_of_it_and_it_is_published() -> None:
    lengths = Lengths()
    lengths.saw(1, "f", 10.0, 0.0)
    before = lengths.of("f")
    for job in range(2, 10):
        lengths.saw(job, "f", 100_000.0, 0.0)
    assert lengths.due
    assert lengths.of("f") == before, "not while a pass may be asking"
    lengths.publish()
    assert lengths.of("f").median_s > before.median_s
    assert not lengths.due
