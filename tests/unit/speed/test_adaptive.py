"""Jobs with adaptive batch sizes: curves from step times and gradient noise, against a training whose law is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import Any

import pytest

from swell.core.events import Batching, EpochEnded, ExitReason, RunPlanned, RunStarted
from swell.core.ids import RunId
from swell.core.job import GpuRequest
from swell.core.resources import Allocation, Part
from swell.speed.adaptive import AHEAD, Goodput, GoodputSpeed
from swell.speed.known_gpu_types import OPTIMISM, SPREAD
from swell.speed.step_time import StepModel
from unit.speed.history import History

LAW = StepModel(0.05, 0.002, (0.01, 0.002), (0.08, 0.004), 1.6)
INITIAL, LARGEST, LOCAL_MAX, WORK, EPOCHS = 128, 4096, 512, 50_000.0, 20


@dataclass
class Trained:
    """A job that takes the best batch, trained under the law and telling what it measured."""

    history: History
    law: StepModel = LAW
    noise_at_end: float = 20_000.0
    slow: float = 1.0  # how many times slower than the law

    def noise(self, epoch: int) -> float:
        return 100.0 + self.noise_at_end * epoch / EPOCHS

    def options(self, gpus: int, nodes: int, epoch: int) -> list[tuple[float, int, int]]:
        """(goodput, local batch, accumulation)"""
        found = []
        for batch in range(max(INITIAL, gpus), LARGEST + 1, 16):
            accumulate = -(-batch // (gpus * LOCAL_MAX)) - 1
            local = batch // (gpus * (accumulate + 1))
            noise = self.noise(epoch)
            gain = (noise / INITIAL + 1) / (noise / batch + 1)
            step = self.law.step_s(nodes, gpus, local, accumulate) * self.slow
            found.append((INITIAL * gain / step, local, accumulate))
        return found

    def epoch_s(self, gpus: int, nodes: int, epoch: int) -> float:
        return WORK / max(self.options(gpus, nodes, epoch))[0]

    def speed(self, most: int, epoch: int) -> float:
        """In the epochs just ahead, on as many of these GPUs as are of use, over that of one. A phase is an epoch."""
        return max(self._ahead_s(1, epoch) / self._ahead_s(gpus, epoch) for gpus in range(1, most + 1))

    def _ahead_s(self, gpus: int, epoch: int) -> float:
        return sum(self.epoch_s(gpus, -(-gpus // 8), e) for e in range(epoch, min(epoch + AHEAD, EPOCHS)))

    def left_s(self, gpus: int, nodes: int, epoch: int) -> float:
        return sum(self.epoch_s(gpus, nodes, e) for e in range(epoch, EPOCHS))

    def submit(self, job: int, **spec: Any) -> None:
        self.history.submit(job, epochs=EPOCHS, adaptive_batch=True, gpus=GpuRequest(min=1, max=32), **spec)

    def report(self, gpus: int, nodes: int, epoch: int) -> dict[str, Any]:
        goodput, local, accumulate = max(self.options(gpus, nodes, epoch))
        step = self.law.step_s(nodes, gpus, local, accumulate) * self.slow
        batch = gpus * local * (accumulate + 1)
        compute = (self.law.alpha + self.law.beta * local) * self.slow
        batching = Batching(
            initial=INITIAL,
            largest=LARGEST,
            local=local,
            accumulate=accumulate,
            local_max=LOCAL_MAX,
            sync_s=step - compute * (accumulate + 1),
            grad_sqr=1.0,
            grad_var=self.noise(epoch),
        )
        speeds = {"step_s": step, "samples_per_s": batch / step, "goodput": goodput}
        return {**speeds, "batch_size": batch, "batching": batching}

    def run(self, job: int, gpus: int, nodes: int, epochs: Sequence[int], gpu_type: str = "gpu") -> None:
        for epoch in epochs:
            report = self.report(gpus, nodes, epoch)
            self.history.run(job, gpus, [WORK / report["goodput"]], nodes, gpu_type, **report)


@pytest.fixture
def world() -> Trained:
    return Trained(History())


def trained_everywhere(world: Trained) -> None:
    """A first job that has been on several sizes and has finished."""
    world.submit(1)
    for start, (gpus, nodes) in enumerate(((1, 1), (2, 1), (4, 1), (8, 1), (16, 2))):
        world.run(1, gpus, nodes, range(3 * start, 3 * start + 3))
    world.run(1, 32, 4, range(15, EPOCHS))
    world.history.end(1, ExitReason.FINISHED)


def left_s(goodput: Goodput, gpus: int, phase: int) -> float:
    return sum(goodput.at("gpu", gpus, -(-gpus // 8))[phase:])


class TestCurves:
    def test_sizes_nobody_has_tried_are_as_fast_as_the_law_says(self, world: Trained) -> None:
        trained_everywhere(world)
        world.submit(2)
        curve = world.history.curve(2)
        for gpus in (2, 3, 4, 6, 8, 12, 16, 24, 32):
            assert curve[gpus] == pytest.approx(world.speed(gpus, epoch=0), rel=0.1), gpus

    def test_more_gpus_help_more_when_the_noise_has_grown(self, world: Trained) -> None:
        trained_everywhere(world)
        world.submit(2)
        young = world.history.curve(2)
        world.run(2, 8, 1, range(16))
        old = world.history.curve(2)
        assert old[32] > 1.15 * young[32]
        assert old[32] == pytest.approx(world.speed(32, epoch=16), rel=0.1)

    def test_a_young_job_is_offered_what_it_can_use_now_and_told_when_it_ends(self, world: Trained) -> None:
        trained_everywhere(world)
        world.submit(2)
        speed = world.history.book.speed(world.history.state.jobs[2], {"gpu": 8})
        now, to_its_end = speed.curve("gpu")[32], speed.rate(32, 4, "gpu")
        assert now == pytest.approx(world.speed(32, epoch=0), rel=0.1)
        assert to_its_end == pytest.approx(world.left_s(1, 1, 0) / world.left_s(32, 4, 0), rel=0.1)
        assert to_its_end > 1.3 * now

    def test_a_larger_batch_of_little_use_is_no_speed(self) -> None:
        world = Trained(History(), noise_at_end=0.0)
        trained_everywhere(world)
        world.submit(2)
        curve = world.history.curve(2)
        assert curve[32] < 4, "samples a second would promise many times that"
        assert curve[32] == pytest.approx(world.speed(32, epoch=0), rel=0.1)

    def test_never_decreasing_and_the_same_object_for_jobs_as_far(self, world: Trained) -> None:
        trained_everywhere(world)
        world.submit(2)
        world.submit(3)
        curve = world.history.curve(2)
        assert list(curve) == sorted(curve)
        assert world.history.curve(3) is curve

    def test_what_is_left_is_the_sum_of_its_epochs_however_it_is_asked_for(self, world: Trained) -> None:
        trained_everywhere(world)
        world.submit(2)
        world.run(2, 4, 1, range(7))
        speed = world.history.book.speed(world.history.state.jobs[2], {"gpu": 8})
        assert isinstance(speed, GoodputSpeed)
        goodput, table = speed.goodput, speed.goodput.table("gpu", 32, 8)
        for gpus in (1, 3, 8, 16, 31):
            nodes = -(-gpus // 8)
            epochs, left = goodput.at("gpu", gpus, nodes), goodput.left("gpu", gpus, nodes)
            for phase in (0, 7, 19):
                assert left[phase] == pytest.approx(sum(epochs[phase:]))
                assert table[phase, gpus - 1] == pytest.approx(epochs[phase])
            assert speed.rate(gpus, nodes, "gpu") == pytest.approx(left_s(goodput, 1, 7) / left_s(goodput, gpus, 7))
        smaller_nodes = goodput.table("gpu", 32, 2)
        assert smaller_nodes[7, 7] == pytest.approx(goodput.at("gpu", 8, 4)[7]), "8 GPUs are four nodes of two"

    def test_a_slow_spell_does_not_poison_it(self, world: Trained) -> None:
        trained_everywhere(world)
        world.submit(2)
        before = world.history.curve(2)
        world.run(2, 4, 1, range(10))
        world.slow = 5.0
        world.run(2, 4, 1, [10])
        world.slow = 1.0
        world.run(2, 4, 1, [11, 12])
        world.submit(3)
        after = world.history.curve(3)
        assert after == pytest.approx(before, rel=0.15)

    def test_a_type_nobody_has_used_is_as_fast_as_types_are_known_to_be_and_may_be_faster(self, world: Trained) -> None:
        world.submit(1)
        world.run(1, 1, 1, range(4), gpu_type="v100")
        world.run(1, 4, 1, range(4, 8), gpu_type="v100")
        assert world.history.curve(1, "a100")[1] == pytest.approx(2.2 * exp(OPTIMISM * SPREAD))
        assert world.history.curve(1, "t4")[1] == pytest.approx(0.55 * exp(OPTIMISM * SPREAD))

    def test_noise_without_bound_and_noise_not_known_are_no_matter(self, world: Trained) -> None:
        world.submit(1)
        for sqr, var in ((0.0, 0.0), (0.0, 5.0), (1e-300, 1.0)):
            batching = Batching(initial=64, largest=512, local=64, grad_sqr=sqr, grad_var=var)
            world.history.run(1, 1, [10.0], step_s=0.1, samples_per_s=640.0, goodput=600.0, batching=batching)
            curve = world.history.curve(1)
            assert list(curve) == sorted(curve)
            assert curve[1] == pytest.approx(1.0)


class TestRemaining:
    def test_of_a_job_that_has_not_begun_as_its_family_took(self, world: Trained) -> None:
        trained_everywhere(world)
        world.submit(2)
        assert world.history.remaining_s(2) == pytest.approx(world.left_s(1, 1, 0), rel=0.1)
        world.run(2, 8, 1, range(10))
        assert world.history.remaining_s(2) == pytest.approx(world.left_s(1, 1, 10), rel=0.1)

    def test_by_half_at_first_and_less_uncertain_with_each_measurement(self, world: Trained) -> None:
        trained_everywhere(world)
        world.submit(2)
        sigmas = []
        for epochs in (0, 1, 9):
            world.run(2, 8, 1, range(epochs))
            sigmas.append(world.history.book.remaining(world.history.state.jobs[2]).sigma)
        assert sigmas == pytest.approx([0.5, 0.25, 0.07], abs=0.02)

    def test_of_a_job_that_is_twice_as_slow_twice_as_long_and_the_family_is_not_misled(self, world: Trained) -> None:
        trained_everywhere(world)
        world.submit(2)
        world.slow = 2.0
        world.run(2, 4, 1, range(10))
        assert world.history.remaining_s(2) == pytest.approx(world.left_s(1, 1, 10), rel=0.15)
        world.slow = 1.0
        world.submit(3)
        assert world.history.remaining_s(3) == pytest.approx(world.left_s(1, 1, 0), rel=0.15)

    def test_within_a_long_first_epoch_it_is_known_already(self, world: Trained) -> None:
        world.submit(1)
        assert world.history.remaining_s(1) == pytest.approx(3600.0), "nothing known is an hour"
        run, report = RunId(1, 1), world.report(1, 1, 0)
        allocation = Allocation(parts=(Part(node="n", gpus=(0,)),), gpu_type="gpu")
        world.history.tell(RunPlanned(run=run, allocation=allocation, at_s=0.0))
        world.history.tell(RunStarted(run=run, at_s=0.0))
        epoch_s = WORK / report["goodput"]
        world.history.tell(
            EpochEnded(run=run, at_s=30.0, epoch=0, count=0, epoch_s=epoch_s, gpus=1, gpu_type="gpu", **report)
        )
        record = world.history.state.jobs[1]
        assert (record.epochs_done, record.run.last_epoch_s if record.run else 0) == (0, None), "nothing has ended"
        assert world.history.remaining_s(1) == pytest.approx(EPOCHS * epoch_s, rel=0.3)
        assert world.history.book.remaining(record).as_of_s == 0.0

    def test_jobs_that_do_not_say_how_many_epochs_are_expected_to_be_half_way(self, world: Trained) -> None:
        world.history.submit(1, adaptive_batch=True)
        world.run(1, 2, 1, range(4))
        assert world.history.remaining_s(1) == pytest.approx(4 * world.epoch_s(1, 1, 3), rel=0.1), "on one GPU"


class TestOldReports:
    def test_without_the_fields_it_is_as_before(self) -> None:
        history = History()
        history.submit(1, epochs=10)
        history.run(1, 1, [100.0] * 3, samples_per_s=10.0, goodput=10.0, batch_size=32)
        history.run(1, 4, [20.0] * 3, samples_per_s=50.0, goodput=25.0, batch_size=128)
        assert history.curve(1)[4] == pytest.approx(2.5, rel=0.1)

    def test_a_fixed_job_of_an_adaptive_family_is_judged_by_its_own_epochs(self, world: Trained) -> None:
        trained_everywhere(world)
        world.submit(2)
        alone = History()
        alone.submit(2)
        for history in (world.history, alone):
            history.run(2, 1, [100.0] * 3)
            history.run(2, 2, [90.0] * 3)
        assert world.history.curve(2)[:16] == pytest.approx(alone.curve(2)[:16])

    def test_everything_a_person_may_want_to_see(self, world: Trained) -> None:
        trained_everywhere(world)
        world.submit(2)
        world.run(2, 4, 1, range(5))
        book, record = world.history.book, world.history.state.jobs[2]
        seen = book.describe(record, {"gpu": 8})
        assert seen.source == "measured"
        assert seen.points[0].speed == pytest.approx(seen.curves["gpu"][4], rel=0.3)
        assert seen.confidence > 0.5
