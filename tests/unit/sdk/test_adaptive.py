"""The gradient noise scale, against gradients whose noise is known, and the batch that follows from it."""

from __future__ import annotations

import numpy as np
import pytest

from swell.core.events import Batching
from swell.sdk.adaptive import AdaptiveBatch, NoiseScale, StepTimes, choose_batch
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


def timed(fixed_s: float, each_s: float, sync_s: float = 0.0) -> StepTimes:
    """Of a job that has tried batches far apart."""
    times = StepTimes()
    for local in (16, 32, 128, 512):
        times.add(local, fixed_s + each_s * local + sync_s, sync_s)
    return times


def test_times_of_steps_are_found_on_a_line() -> None:
    for fixed_s, each_s in ((0.0, 0.01), (1.0, 0.01), (1.0, 0.001)):
        assert timed(fixed_s, each_s, 0.3).step_s(1000) == pytest.approx(fixed_s + each_s * 1000 + 0.3, rel=0.05)
    once = StepTimes()
    once.add(10, 1.0, 0.0)
    assert once.step_s(20) == pytest.approx(1.5), "half of what one batch took is for its samples"
    odd = timed(1.0, -0.001)
    assert odd.step_s(1000) == pytest.approx(odd.step_s(64)), "larger batches are never taken to be faster"


@pytest.mark.parametrize("busier", [0.7, 1.5])
def test_nearly_equal_batches_tell_nothing_of_what_a_sample_costs(busier: float) -> None:
    """Or a job would stay with its second batch for good because the machine was busy in that epoch."""
    times = StepTimes()
    times.add(32, 1.0, 0.0)
    times.add(35, busier, 0.0)
    assert times.step_s(64) == pytest.approx(1.5 * (1.0 + busier) / 2, rel=0.15)


def test_times_that_cannot_be_are_not_believed() -> None:
    broken = StepTimes()
    broken.add(10, 0.0, 0.0)
    broken.add(10, 1.0, 2.0)
    assert not broken.largest


def test_before_anything_is_known_the_batch_is_the_users() -> None:
    assert choose_batch(NoiseScale(), timed(0.1, 0.01), 64, 1024, 4) == 64
    assert choose_batch(measured(200.0, 4), StepTimes(), 64, 1024, 4) == 64
    assert choose_batch(NoiseScale(), StepTimes(), 2, 1024, 4) == 4, "each worker has a sample at least"


@pytest.mark.parametrize("workers", [1, 3, 4])
@pytest.mark.parametrize("most", [64, 100, 1024])
def test_the_batch_is_that_of_the_largest_goodput_within_bounds(workers: int, most: int) -> None:
    noise, times = measured(200.0, 4), timed(0.1, 0.01, 0.2)
    chosen = choose_batch(noise, times, 64, most, workers)
    assert chosen % workers == 0
    assert 64 // workers * workers <= chosen <= most
    possible = range(64 // workers * workers, most + 1, workers)
    best = max(noise.gain(batch, 64) / times.step_s(batch / workers) for batch in possible)
    assert noise.gain(chosen, 64) / times.step_s(chosen / workers) == pytest.approx(best, rel=0.01)


def test_waiting_for_others_makes_batches_larger_and_samples_that_cost_make_them_smaller() -> None:
    noise = measured(200.0, 4)
    chosen = [choose_batch(noise, timed(0.0, 0.01, sync_s), 64, 4096, 4) for sync_s in (0.0, 1.0, 1e6)]
    assert chosen == sorted(chosen)
    assert chosen[0] == 64, "without any price of a step the smallest batch wastes least"
    assert chosen[-1] == 4096, "waiting only: as few steps as possible"


def test_a_batch_is_never_much_larger_than_any_that_was_timed() -> None:
    noise, times = measured(1e6, 4), StepTimes()
    times.add(16, 1.0, 0.9)
    assert choose_batch(noise, times, 64, 4096, 4) == 128
    times.add(32, 1.0, 0.9)
    assert choose_batch(noise, times, 64, 4096, 4) == 256
    assert choose_batch(noise, times, 4000, 4096, 4) == 4000, "the user's batch is not questioned"


def test_its_state_is_a_checkpoint() -> None:
    noise, again = measured(50.0, 2, steps=100), NoiseScale()
    again.load(noise.state())
    assert again.value == noise.value
    times, as_well = timed(0.1, 0.01, 0.2), StepTimes()
    as_well.load(times.state())
    assert as_well.step_s(7) == times.step_s(7)


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
    adaptive.noise, adaptive.times = measured(200.0, 4), timed(1.0, 0.01)
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
