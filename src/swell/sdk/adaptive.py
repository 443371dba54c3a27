"""Adaptive batch sizes (opt-in), so that more GPUs mean more progress and not only more samples.

A larger batch averages away noise of the gradient. How far that helps is measured by the gradient noise scale φ = tr(Σ)
/ |G|² (McCandlish et al. 2018), in samples: beyond φ, more samples in a step teach little. From it follow

    efficiency(B) = (φ + B₀) / (φ + B)      progress of a sample at batch B, relative to the user's batch B₀ (Pollux)
    gain(B)       = (φ/B₀ + 1) / (φ/B + 1)  the learning rate's factor (AdaScale)
    goodput       = samples/s × efficiency

The batch is the one with the largest goodput according to the measured step times: large enough to spread the fixed
cost of a step and the waiting for other workers over many samples, but not so large that samples are wasted. It at most
doubles from one epoch to the next.

φ is estimated from two averages of the same step: each worker's own gradient (batch b) and the one averaged over all
workers (batch B); a single worker takes two steps in a row instead. Every worker computes the same numbers.

    adaptive = AdaptiveBatch(run, ddp_model, optimizer, batch_size=256, max_batch_size=4096)
    for epoch in run.epochs():
        for batch in run.steps(loader(adaptive.batch_size)):    # the global batch, constant within an epoch
            loss(...).backward()
            adaptive.step()                                     # instead of optimizer.step()
            optimizer.zero_grad()
        adaptive.end_epoch()
"""

from __future__ import annotations

from importlib import import_module
from math import isfinite
from time import perf_counter
from typing import Any

from swell.sdk.session import Training

MEMORY = 0.98
"""Weight of the earlier estimates when a new one comes in: single estimates are very noisy."""
FINER = 1.1
"""Factor between the batch sizes that are considered."""
GROWTH = 2.0
"""Batches are at most this many times the largest that was timed: the cost of a larger step is unknown."""
SHARE_DEVIATION = 0.25
"""Without measurements half of a step's time is assumed to be for its samples, with this standard deviation."""
TIME_DEVIATION = 0.1
"""The median step of one epoch differs by about this part from that of another with the same batch."""


class NoiseScale:
    """Running estimates of |G|² and tr(Σ), unbiased; φ is their ratio."""

    def __init__(self) -> None:
        self._weight = self._signal = self._noise = 0.0

    def update(self, small: float, small_square: float, big: float, big_square: float) -> None:
        """Squared norms of the gradient averaged over `small` and over `big` samples."""
        signal = (big * big_square - small * small_square) / (big - small)
        noise = (small_square - big_square) / (1.0 / small - 1.0 / big)
        self._signal = MEMORY * self._signal + (1 - MEMORY) * signal
        self._noise = MEMORY * self._noise + (1 - MEMORY) * noise
        self._weight = MEMORY * self._weight + (1 - MEMORY)

    @property
    def known(self) -> bool:
        return self._weight > 0

    @property
    def value(self) -> float:
        """φ in samples. 0: unknown yet, or negligible noise."""
        if self._signal <= 0 or self._noise <= 0:
            return 0.0 if self._noise <= 0 else float("inf")
        return self._noise / self._signal

    @property
    def signal_and_noise(self) -> tuple[float, float]:
        """|G|² and tr(Σ), neither negative. Both 0: unknown yet, or the training diverged (NaN)."""
        if not self._weight or not isfinite(self._signal + self._noise):
            return 0.0, 0.0
        return max(0.0, self._signal / self._weight), max(0.0, self._noise / self._weight)

    def efficiency(self, batch: float, base: float) -> float:
        phi = self.value
        return 1.0 if phi == float("inf") else (phi + base) / (phi + batch)

    def gain(self, batch: float, base: float) -> float:
        phi = self.value
        return batch / base if phi == float("inf") else (phi / base + 1) / (phi / batch + 1)

    def state(self) -> tuple[float, float, float]:
        return self._weight, self._signal, self._noise

    def load(self, state: tuple[float, float, float]) -> None:
        self._weight, self._signal, self._noise = state


class StepTimes:
    """How long a step takes with any local batch: a constant part, a part per sample, and waiting for other workers."""

    def __init__(self) -> None:
        self._compute_s: dict[int, float] = {}  # as last measured, by local batch
        self._sync_s = 0.0

    def add(self, local: int, step_s: float, sync_s: float) -> None:
        if 0.0 <= sync_s < step_s:
            self._compute_s[local] = step_s - sync_s
            self._sync_s = sync_s

    @property
    def largest(self) -> int:
        """The largest local batch that was measured. 0: none."""
        return max(self._compute_s, default=0)

    def step_s(self, local: float) -> float:
        """On the line through what was measured."""
        sizes, times = list(self._compute_s), list(self._compute_s.values())
        size, time_s = sum(sizes) / len(sizes), sum(times) / len(times)
        return time_s + self._share(size, time_s) * time_s * (local - size) / size + self._sync_s

    def _share(self, size: float, time_s: float) -> float:
        """Of the mean time, what is spent on samples: half, until batches far apart tell otherwise. Least squares
        with that belief: two batches of nearly the same size only tell which of them ran on a busier machine."""
        evidence, weight = 0.5 / SHARE_DEVIATION**2, 1.0 / SHARE_DEVIATION**2
        for measured, took_s in self._compute_s.items():
            apart, longer = measured / size - 1.0, took_s / time_s - 1.0
            evidence += apart * longer / TIME_DEVIATION**2
            weight += apart * apart / TIME_DEVIATION**2
        return min(max(evidence / weight, 0.0), 1.0)

    def state(self) -> tuple[dict[int, float], float]:
        return dict(self._compute_s), self._sync_s

    def load(self, state: tuple[dict[int, float], float]) -> None:
        self._compute_s, self._sync_s = dict(state[0]), state[1]


def choose_batch(noise: NoiseScale, times: StepTimes, base: int, most: int, world_size: int) -> int:
    """The global batch with the largest goodput, a multiple of the number of workers. Before anything is measured: the
    user's batch."""
    first = _shared(base, world_size)
    if not noise.known or not times.largest:
        return first
    most = min(most, int(GROWTH * times.largest) * world_size)
    sizes = {first, max(first, _shared(most, world_size))}
    size = float(base)
    while size < most:
        sizes.add(max(first, _shared(int(size), world_size)))
        size *= FINER
    return max(sorted(sizes), key=lambda batch: noise.gain(batch, base) / times.step_s(batch / world_size))


def _shared(batch: int, world_size: int) -> int:
    return max(world_size, batch // world_size * world_size)


class AdaptiveBatch:
    """For PyTorch: `model` is a DistributedDataParallel, or a plain module in a single worker."""

    def __init__(self, run: Training, model: Any, optimizer: Any, *, batch_size: int, max_batch_size: int) -> None:
        self._run, self._model, self._optimizer = run, model, optimizer
        self._base, self._most = batch_size, max_batch_size
        self._rates = [group["lr"] for group in optimizer.param_groups]
        self._own = self._averaged = 0.0
        self._before: Any = None  # a single worker's gradient of the step before
        self._computed_s = self._averaged_s = 0.0  # when a step's last gradients were there, and when all had them
        self._sync_s = 0.0  # waited in between, in this epoch
        self._steps = 0
        self.noise = NoiseScale()
        self.times = StepTimes()
        self.batch_size = self._best_batch()
        run.within = self._measured
        if run.world_size > 1:
            model.register_comm_hook(None, self._hook())

    def _hook(self) -> Any:
        def hook(_: Any, bucket: Any) -> Any:
            return self._reduce(bucket)

        hook.__annotations__.clear()  # PyTorch wants its own types there, or none
        return hook

    def _reduce(self, bucket: Any) -> Any:
        """DDP's averaging of one bucket, with both norms noted on the way."""
        hooks: Any = import_module("torch.distributed.algorithms.ddp_comm_hooks.default_hooks")
        self._own += float(bucket.buffer().double().pow(2).sum())
        self._computed_s = perf_counter()  # of the last bucket, it stays: what comes after is waiting

        def note(future: Any) -> Any:
            averaged = future.value()
            self._averaged += float(averaged.double().pow(2).sum())
            self._averaged_s = perf_counter()
            return averaged

        return hooks.allreduce_hook(None, bucket).then(note)

    def step(self) -> None:
        """Learn from the gradient, scale the learning rate, step."""
        self._sync_s += max(0.0, self._averaged_s - self._computed_s)
        self._steps += 1
        if self._run.world_size > 1:
            self._learn_from_workers()
        else:
            self._learn_from_two_steps()
        gain = self.noise.gain(self.batch_size, self._base) if self.noise.known else 1.0
        for group, rate in zip(self._optimizer.param_groups, self._rates):  # noqa: B905  Python 3.8
            group["lr"] = rate * gain
        self._optimizer.step()

    def _learn_from_workers(self) -> None:
        (own,) = self._over_workers(self._own)
        self.noise.update(self.batch_size / self._run.world_size, own, self.batch_size, self._averaged)
        self._own = self._averaged = 0.0

    def _learn_from_two_steps(self) -> None:
        gradients = [p.grad.detach().double() for p in self._model.parameters() if p.grad is not None]
        before, self._before = self._before, gradients
        if before is None or len(before) != len(gradients):
            return
        pairs = list(zip(before, gradients))  # noqa: B905  Python 3.8
        small = sum(float(a.pow(2).sum()) + float(b.pow(2).sum()) for a, b in pairs) / 2
        big = sum(float((a + b).pow(2).sum()) for a, b in pairs) / 4
        self.noise.update(self.batch_size, small, 2 * self.batch_size, big)
        self._before = None  # pairs do not overlap

    def end_epoch(self) -> None:
        """Report goodput and choose the next epoch's batch."""
        measured = self._measured()
        self._learn_times(measured["batching"]["sync_s"])
        self._run.batch_size, self._run.goodput, self._run.batching = (
            measured["batch_size"],
            measured["goodput"],
            measured["batching"],
        )
        self._run.log(noise_scale=self.noise.value)
        self._sync_s, self._steps = 0.0, 0
        self.batch_size = self._best_batch()

    def _learn_times(self, sync_s: float) -> None:
        """As the mean worker sees them: all choose the same batch. Of an undisturbed step, and of it the part that was
        spent waiting in all of them."""
        step_s, mean_s = self._run.median_step_s, self._run.step_s
        sync_s = sync_s * step_s / mean_s if mean_s > 0 else 0.0
        if self._run.world_size > 1:
            step_s, sync_s = self._over_workers(step_s, sync_s)
        self.times.add(self.batch_size // self._run.world_size, step_s, sync_s)

    def _over_workers(self, *numbers: float) -> list[float]:
        """Means over all workers. On the model's device: NCCL knows no other."""
        torch: Any = import_module("torch")
        device = next(self._model.parameters()).device
        totals = torch.tensor(numbers, dtype=torch.float64, device=device)
        torch.distributed.all_reduce(totals)
        return [float(total) / self._run.world_size for total in totals]

    def _best_batch(self) -> int:
        return choose_batch(self.noise, self.times, self._base, self._most, self._run.world_size)

    def _measured(self) -> dict[str, Any]:
        """Of this epoch so far, in the names of `core.events.EpochEnded`: what the daemon models the job's speed by."""
        per_s = self.batch_size / self._run.step_s if self._run.step_s > 0 else 0.0
        sqr, var = self.noise.signal_and_noise
        return {
            "batch_size": self.batch_size,
            "goodput": per_s * self.noise.efficiency(self.batch_size, self._base),
            "batching": {
                "initial": self._base,
                "largest": self._most,
                "local": self.batch_size // self._run.world_size,
                "sync_s": self._sync_s / self._steps if self._steps else 0.0,
                "grad_sqr": sqr,
                "grad_var": var,
            },
        }

    def state_dict(self) -> dict[str, Any]:
        return {"noise": self.noise.state(), "times": self.times.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.noise.load(state["noise"])
        self.times.load(state["times"])
        self.batch_size = self._best_batch()
