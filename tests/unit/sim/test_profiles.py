from __future__ import annotations

from pathlib import Path

import pytest

from swell.core.errors import SwellError
from swell.sim.profiles import Setting, applications, around, canonical, packed, spread_over


def test_a_placement_is_the_same_in_any_rotation() -> None:
    assert canonical((4, 1, 2)) == canonical((1, 2, 4)) == canonical((2, 4, 1)) == (1, 2, 4)


def test_packed_fills_nodes_and_spread_over_balances_them() -> None:
    assert packed(10, 4) == (2, 4, 4)
    assert spread_over(10, 4) == (2, 2, 3, 3)
    assert spread_over(2, 5) == (1, 1)


@pytest.mark.parametrize(
    ("x", "weights"), [(3, [(4, 1.0)]), (4, [(4, 1.0)]), (5, [(4, 0.75), (8, 0.25)]), (9, [(8, 1.0)])]
)
def test_around_is_linear_between_and_nearest_beyond(x: float, weights: list[tuple[int, float]]) -> None:
    assert around([4, 8], x) == weights


def test_step_times_are_linear_in_the_local_batch(profiles: Path) -> None:
    times = applications(profiles)["toy"].times("gpu")
    assert times.at((1,), 7) == pytest.approx((0.7, 0.0))
    assert times.at((2, 2), 20) == pytest.approx((2.2, 0.2))


def test_unknown_placements_lie_between_what_was_measured(profiles: Path) -> None:
    times = applications(profiles)["toy"].times("gpu")
    two_nodes, four_nodes = times.at((4, 4), 10)[0], times.at((4, 4, 4, 4), 10)[0]
    assert two_nodes < times.at((4, 4, 4), 10)[0] < four_nodes


def test_a_batch_that_exceeds_the_largest_local_one_is_accumulated(profiles: Path) -> None:
    app = applications(profiles)["toy"]
    assert app.fixed(40, 4, "gpu") == Setting(10, 0)
    assert app.fixed(40, 1, "gpu") == Setting(20, 1)  # one GPU beyond the initial size accumulates at least once


def test_progress_a_second_is_gain_over_step_time(profiles: Path) -> None:
    app = applications(profiles)["toy"]
    assert app.rates("gpu", (1,), Setting(10, 0))[0] == pytest.approx(1.0)
    assert app.rates("gpu", (4,), Setting(10, 0))[0] == pytest.approx(4 / 1.1)


def test_a_directory_without_profiles_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(SwellError, match="holds no profiles"):
        applications(tmp_path)
