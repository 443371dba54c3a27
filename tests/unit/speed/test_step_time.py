"""The model of a step's time, against steps whose law is known."""

from __future__ import annotations

from itertools import product

import pytest

from swell.speed.step_time import NOTHING_MEASURED, Point, StepModel, fit, fit_closely

LAW = StepModel(0.05, 0.002, (0.01, 0.002), (0.08, 0.004), 1.6)


def seen(law: StepModel, points: list[Point]) -> dict[Point, tuple[float, float]]:
    """Steps as a job would measure them: what is not computing is waiting for others."""
    return {
        (nodes, gpus, local): (step, step - (law.alpha + law.beta * local))
        for nodes, gpus, local in points
        if (step := law.step_s(nodes, gpus, local))
    }


class TestFit:
    def test_a_known_law_is_recovered(self) -> None:
        places = [(1, 1), (1, 2), (1, 4), (2, 8), (4, 16)]
        found = fit(seen(LAW, [(m, k, local) for (m, k), local in product(places, (32, 64, 256))]))
        assert found.alpha == pytest.approx(LAW.alpha)
        assert found.beta == pytest.approx(LAW.beta)
        assert found.gamma == LAW.gamma
        for got, true in zip((*found.inside, *found.between), (*LAW.inside, *LAW.between), strict=True):
            assert got == pytest.approx(true, rel=1e-6)

    def test_it_holds_where_nobody_has_been(self) -> None:
        found = fit(seen(LAW, [(1, 1, 32), (1, 2, 128), (1, 4, 64), (2, 8, 128), (3, 12, 32)]))
        for nodes, gpus, local in ((1, 3, 100), (4, 16, 64), (8, 32, 256)):
            assert found.step_s(nodes, gpus, local, 2) == pytest.approx(LAW.step_s(nodes, gpus, local, 2), rel=0.1)

    def test_a_single_point_is_met_and_the_network_is_for_free_until_it_was_seen(self) -> None:
        found = fit({(1, 1, 64): (0.2, 0.0)})
        assert found.step_s(1, 1, 64) == pytest.approx(0.2)
        assert found.step_s(2, 8, 64) == pytest.approx(0.2)
        assert found.step_s(1, 1, 128) == pytest.approx(0.3), "half of it grows with the batch"

    def test_times_that_fall_with_the_batch_do_not_make_it_negative(self) -> None:
        found = fit({(1, 1, 32): (0.3, 0.0), (1, 1, 64): (0.2, 0.0), (1, 1, 128): (0.1, 0.0)})
        assert found.beta == 0.0
        assert found.step_s(1, 1, 4096) > 0


class TestClosely:
    def test_two_nodes_that_are_slower_than_four_are_known_to_be(self) -> None:
        true = {8: 1.2, 12: 0.7, 16: 0.8}  # as measured for BERT on T4s, about
        points = {(1, k, 8): (0.3, 0.0 if k == 1 else 0.05) for k in (1, 2, 4)}
        points |= {(k // 4, k, 8): (step, step - 0.3) for k, step in true.items()}
        found = fit_closely(points)
        for gpus, step in true.items():
            assert found.step_s(gpus // 4, gpus, 8) == pytest.approx(step, rel=0.02)
        assert fit(points).step_s(2, 8, 8) < 1.1, "a line cannot say so"

    def test_beyond_what_was_measured_it_goes_on_as_the_line_does(self) -> None:
        found = fit_closely(seen(LAW, [(1, 1, 32), (1, 2, 64), (1, 4, 64), (2, 8, 64), (4, 16, 32)]))
        assert found.step_s(16, 64, 32) == pytest.approx(LAW.step_s(16, 64, 32), rel=0.15)

    def test_another_type_computes_slower_on_the_same_network(self) -> None:
        slower = LAW.slower(3.0)
        assert slower.step_s(1, 1, 64) == pytest.approx(3 * LAW.step_s(1, 1, 64))
        assert slower.network_s(2, 8) == LAW.network_s(2, 8)
        assert slower.measured == NOTHING_MEASURED
