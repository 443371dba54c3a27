"""The gradient noise scale, against gradients whose noise is known."""

from __future__ import annotations

import numpy as np
import pytest

from swell.core.events import Batching
from swell.sdk.adaptive import AdaptiveBatch, NoiseScale, choose_batch
from swell.sdk.session import Training
from swell.sdk.settings import Settings


def measured(phi: float, workers: int, steps: int = 4000) -> NoiseScale:
    """From per-sample gradients with mean 1 in one direction and noise of trace `phi`."""
    rng = np.random.default_rng(1)
    dimensions, batch = 50, 8
    mean = np.zeros(dimensions)
    mean[0] = 1.0
    noise = NoiseScale()
    for _ in range(steps):
        own = mean + rng.normal(0, np.sqrt(phi / dimensions / batch), (workers, dimensions))
        averaged = own.mean(axis=0)
        noise.update(batch, float((own**2).sum(axis=1).mean()), batch * workers, float((averaged**2).sum()))
    return noise


@pytest.mark.parametrize("phi", [10.0, 200.0])
@pytest.mark.parametrize("workers", [2, 4])
def test_the_estimate_finds_the_noise(phi: float, workers: int) -> None:
    assert measured(phi, workers).value == pytest.approx(phi, rel=0.4)


def test_efficiency_and_gain_at_their_ends() -> None:
    noise = measured(200.0, 4)
    assert noise.efficiency(64, 64) == 1.0
    assert noise.gain(64, 64) == pytest.approx(1.0)
    assert 0 < noise.efficiency(10_000, 64) < 0.1
    assert 1 < noise.gain(10_000, 64) < 10_000 / 64
    clean = NoiseScale()
    clean.update(8, 1.0, 16, 1.0)
    assert clean.value == 0.0
    assert clean.gain(128, 64) == 1.0, "without noise a larger batch teaches nothing more"
    drowned = NoiseScale()
    drowned.update(8, 2.0, 16, 1.0)
    assert drowned.value == float("inf")
    assert drowned.gain(128, 64) == 2.0, "in pure noise a larger batch is worth its size"
    assert drowned.efficiency(128, 64) == 1.0


def test_the_batch_goes_to_the_noise_scale_within_bounds_in_multiples_of_the_workers() -> None:
    noise = measured(200.0, 4)
    assert choose_batch(NoiseScale(), 64, 1024, 4) == 64
    assert 64 <= choose_batch(noise, 64, 1024, 3) <= 1024
    assert choose_batch(noise, 64, 1024, 3) % 3 == 0
    assert choose_batch(noise, 64, 100, 4) == 100
    assert choose_batch(noise, 1000, 4000, 4) == 1000


def test_its_state_is_a_checkpoint() -> None:
    noise, again = measured(50.0, 2, steps=100), NoiseScale()
    again.load(noise.state())
    assert again.value == noise.value


class Optimizer:
    def __init__(self) -> None:
        self.param_groups = [{"lr": 0.1}]


def test_the_daemon_is_told_what_it_models_the_speed_by() -> None:
    run = Training(epochs=2, settings=Settings())
    adaptive = AdaptiveBatch(run, None, Optimizer(), batch_size=64, max_batch_size=1024)
    run.start_epoch()
    run.measure()
    adaptive.end_epoch()
    assert run.batching is not None
    assert Batching(**run.batching) == Batching(initial=64, largest=1024, local=64), "no gradient was seen yet"
    adaptive.noise = measured(200.0, 4)
    adaptive.end_epoch()
    told = Batching(**run.batching)
    assert told.grad_var / told.grad_sqr == pytest.approx(adaptive.noise.value)
    assert adaptive.batch_size > 64
    assert run.within is not None
    assert run.within()["batch_size"] == adaptive.batch_size, "what runs now, not what was reported last"


def test_a_gradient_that_overflowed_is_not_told() -> None:
    noise = measured(200.0, 4)
    noise.update(8, float("inf"), 16, 1.0)
    assert noise.signal_and_noise == (0.0, 0.0)
