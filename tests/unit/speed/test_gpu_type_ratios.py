"""How fast GPU types are to each other, by what other families found: for a family that has not tried them all."""

from __future__ import annotations

from math import exp, log

import pytest

from swell.speed.fit import Fit
from swell.speed.gpu_type_ratios import TypeRatios, type_ratios_of
from swell.speed.known_gpu_types import OPTIMISM, SPREAD
from unit.speed.history import History
from unit.speed.test_adaptive import Trained

NODES = {"new": 8, "old": 8}
HOPE = exp(OPTIMISM * SPREAD)


def told(*ratios: float) -> TypeRatios:
    """By families that are so many times faster on the new type than on the old one."""
    return type_ratios_of([{"old": float(level), "new": level + log(ratio)} for level, ratio in enumerate(ratios)])


def ratio(type_ratios: TypeRatios, optimism: float = 0.0) -> float:
    return exp(type_ratios.guess({"old": 3.0}, "new", optimism) - 3.0)


def test_a_family_is_expected_to_be_as_much_faster_on_a_type_as_most_others_are() -> None:
    assert ratio(told(4.0)) == pytest.approx(4.0)
    assert ratio(told(4.0, 5.0, 100.0)) == pytest.approx(5.0, rel=0.05)


def test_the_more_families_disagree_the_more_is_hoped_for() -> None:
    alike, unlike = told(3.0, 3.0, 3.0, 3.0), told(1.0, 2.0, 4.5, 9.0)
    assert ratio(unlike) == pytest.approx(ratio(alike))
    assert ratio(unlike, 1.0) > 1.2 * ratio(alike, 1.0) > 1.2 * ratio(alike)


def test_one_clock_gone_wrong_changes_little() -> None:
    usual = told(2.0, 2.5, 3.0, 3.5, 4.0)
    wrong = told(2.0, 2.5, 3.0, 3.5, 4.0, 1e9)
    assert ratio(wrong) == pytest.approx(ratio(usual), rel=0.1)
    assert ratio(wrong, 1.0) < 4.0 * ratio(usual, 1.0)


def test_types_that_were_only_compared_with_a_third_are_compared() -> None:
    found = type_ratios_of([{"a": 0.0, "b": log(2.0)}, {"b": 1.0, "c": 1.0 + log(3.0)}])
    assert exp(found.guess({"a": 0.0}, "c", 0.0)) == pytest.approx(6.0, rel=0.01)


def test_the_table_of_known_types_counts_as_one_more_family() -> None:
    odd = {"V100": 0.0, "A100": log(0.5)}
    assert exp(type_ratios_of([odd]).guess({"V100": 0.0}, "A100", 0.0)) == pytest.approx((0.5 * 2.2) ** 0.5)
    assert exp(type_ratios_of([odd] * 9).guess({"V100": 0.0}, "A100", 0.0)) == pytest.approx(0.5, rel=0.1)


def test_a_type_that_nobody_has_tried_is_as_known_relative_to_those_that_were() -> None:
    found = type_ratios_of([{"V100": 0.0, "A100": log(2.2)}])
    assert exp(found.guess({"A100": 0.0}, "H100", 0.0)) == pytest.approx(4.0 / 2.2)
    assert exp(TypeRatios().guess({"V100": 0.0}, "A100", 0.0)) == pytest.approx(2.2)


def test_a_type_that_nobody_has_tried_is_hoped_to_be_faster_than_known() -> None:
    assert exp(TypeRatios().guess({"V100": 0.0}, "A100")) == pytest.approx(2.2 * HOPE)
    assert Fit(reference_type="V100").type_speed("A100") == pytest.approx(2.2)
    assert Fit(reference_type="V100", optimism=OPTIMISM).type_speed("A100") == pytest.approx(2.2 * HOPE)


def test_a_fit_is_completed_only_with_what_it_has_not_measured() -> None:
    type_ratios = told(4.0)
    assert (
        Fit(points=2, reference_type="old", type_speeds={"new": 1.5}, type_ratios=type_ratios).type_speed("new") == 1.5
    )
    assert Fit(type_ratios=type_ratios).type_speed("new") == 1.0
    assert Fit(reference_type="old", type_ratios=type_ratios).type_speed("new") == pytest.approx(4.0)
    assert Fit(reference_type="old", type_ratios=type_ratios, optimism=1.0).type_speed("new") > 4.0


def test_a_type_that_nobody_has_tried_is_beside_all_that_a_family_has_measured() -> None:
    # On both it is twice as fast as known, beside the reference: so it will be there too, and not only a third faster.
    fit = Fit(reference_type="A100", points=2, type_speeds={"V100": 2.0 / 2.2, "T4": 2.0 * 0.55 / 2.2})
    assert fit.type_speed("H100") == pytest.approx(4.0 / 2.2 * 2.0 ** (2 / 3))


def test_small_changes_are_not_told() -> None:
    assert not told(4.0).differs(told(4.1))
    assert told(4.0).differs(told(5.0))
    assert told(4.0).differs(TypeRatios())


def faster_on_new(told: History, job: int) -> float:
    speed = told.book.speed(told.state.jobs[job], NODES)
    return speed.rate(2, 1, "new") / speed.rate(2, 1, "old")


@pytest.fixture
def compared() -> History:
    """Job 1 is of a family that was measured on both types, job 2 of one on the old type only."""
    history = History()
    for job, family in enumerate(["both", "one", "one", "none"], start=1):
        history.submit(job, epochs=50, family=family)
    assert faster_on_new(history, 2) == pytest.approx(1.0)
    history.run(2, 2, [300.0] * 3, gpu_type="old")
    assert faster_on_new(history, 2) == pytest.approx(HOPE)
    for gpu_type, epoch_s in (("old", 80.0), ("new", 20.0)):
        for gpus in (1, 2, 4):
            history.run(1, gpus, [2 * epoch_s / gpus] * 3, gpu_type=gpu_type)
    return history


def test_what_one_family_measured_is_expected_of_the_others(compared: History) -> None:
    assert faster_on_new(compared, 1) == pytest.approx(4.0, rel=0.1)
    assert faster_on_new(compared, 4) == pytest.approx(4.0, rel=0.1)  # nothing is known of it
    assert faster_on_new(compared, 3) == pytest.approx(4.0, rel=0.1)  # only its family was measured


def test_who_has_run_may_be_tried_elsewhere_but_begins_where_it_is_expected_to_be_fast(compared: History) -> None:
    assert 1.2 * faster_on_new(compared, 3) < faster_on_new(compared, 2) < 8.0


def test_its_own_measurement_counts_as_soon_as_there_is_one(compared: History) -> None:
    compared.run(2, 2, [300.0] * 3, gpu_type="new")
    assert faster_on_new(compared, 2) < 2.0


def test_answers_are_the_same_objects_until_types_are_compared_anew(compared: History) -> None:
    record = compared.state.jobs[4]
    before = compared.book.speed(record, NODES)
    compared.run(1, 2, [20.0], gpu_type="new")
    assert compared.book.speed(record, NODES) is before
    compared.submit(5, epochs=50, family="also")
    for gpu_type, epoch_s in (("old", 80.0), ("new", 80.0)):
        compared.run(5, 2, [epoch_s] * 3, gpu_type=gpu_type)
    after = compared.book.speed(record, NODES)
    assert after is not before
    assert 1.0 < after.rate(1, 1, "new") / after.rate(1, 1, "old") < 4.0


def test_what_adaptive_jobs_measured_is_expected_of_the_others() -> None:
    history = History()
    old, new = Trained(history), Trained(history, slow=0.2)
    for job, family in ((1, "both"), (2, "one")):
        old.submit(job, family=family)
    for gpus in (1, 2, 4):
        old.run(1, gpus, 1, [0, 1], "old")
        old.run(2, gpus, 1, [0, 1], "old")
    assert 1.0 < faster_on_new(history, 2) <= HOPE * 1.001
    for gpus in (1, 2, 4):
        new.run(1, gpus, 1, [0, 1], "new")
    assert faster_on_new(history, 1) == pytest.approx(5.0, rel=0.1)
    assert 4.0 < faster_on_new(history, 2) < 10.0
    old.run(2, 2, 1, [0, 1], "new")
    assert faster_on_new(history, 2) == pytest.approx(1.0, rel=0.1)


def test_types_are_compared_at_batches_that_both_have_seen() -> None:
    """Twenty-four slow GPUs share a batch, four fast ones another: neither tells what a whole one takes on one GPU."""
    history = History()
    old, new = Trained(history), Trained(history, slow=0.2)
    for job, family in ((1, "both"), (2, "none")):
        old.submit(job, family=family)
    old.run(1, 24, 3, [0, 1], "old")
    new.run(1, 4, 1, [0, 1], "new")
    speed = history.book.speed(history.state.jobs[2], NODES)
    assert speed.rate(1, 1, "new") / speed.rate(1, 1, "old") == pytest.approx(5.0, rel=0.25)


def test_the_spread_is_the_root_mean_square_of_how_far_families_are_from_the_median() -> None:
    found = type_ratios_of([{"old": 0.0, "new": 1.0}, {"old": 0.0, "new": 1.0}, {"old": 0.0, "new": 4.0}])
    expected = ((SPREAD**2 + 0.0 + 0.0 + 3.0**2) / 4) ** 0.5
    hoped = found.guess({"old": 0.0}, "new", 1.0) - found.guess({"old": 0.0}, "new", 0.0)
    assert hoped == pytest.approx(expected, rel=1e-6)
