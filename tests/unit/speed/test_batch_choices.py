"""Batches that an adaptive job may choose from: within its bounds on every number of GPUs."""

from __future__ import annotations

import pytest

from swell.speed.batch_choices import Bounds, choices, packed


def test_no_gpu_gets_less_than_the_least_local_batch_and_none_more_than_the_most() -> None:
    bounds = Bounds(initial=32, largest=4096, local_min=16, local_max=64)
    found = choices(bounds, packed(8, 4))
    for column, gpus in enumerate(range(1, 9)):
        assert found.batch[0, column] == pytest.approx(max(32, 16 * gpus))
        assert found.batch[-1, column] == pytest.approx(4096)
        assert found.local[:, column].min() >= 16 - 1e-9
        assert found.local[:, column].max() <= 64 + 1e-9
        total = found.local[:, column] * gpus * (found.accumulate[:, column] + 1)
        assert total == pytest.approx(found.batch[:, column])
