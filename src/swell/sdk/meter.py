"""Measures step and epoch times. `step` is on the hot path: it takes well under a microsecond and keeps no
allocation."""

from __future__ import annotations

from time import perf_counter
from typing import Any

RECENT = 512
"""Number of latest steps that are kept for percentiles."""

SETTING = ("gpus", "nodes", "gpu_type", "batch_size")
"""What the times of an epoch depend on, besides how its batch is split."""


class Meter:
    """One epoch at a time. Validation after the last step counts for the epoch, not for a step."""

    def __init__(self) -> None:
        self._recent: list[float] = [0.0] * RECENT
        self.samples_said = 0
        self.steps = 0
        self._began_s = self._last_s = perf_counter()
        self._stepping_s = 0.0

    def begin_epoch(self) -> None:
        self.steps = self.samples_said = 0
        self._stepping_s = 0.0
        self._began_s = self._last_s = perf_counter()

    def resume(self) -> None:
        """The next step starts now: time since the last one was spent on something else."""
        self._last_s = perf_counter()

    def step(self, samples: int = 0) -> None:
        now_s = perf_counter()
        took_s = now_s - self._last_s
        self._last_s = now_s
        self._stepping_s += took_s
        self._recent[self.steps % RECENT] = took_s
        self.steps += 1
        self.samples_said += samples

    @property
    def epoch_s(self) -> float:
        return perf_counter() - self._began_s

    @property
    def step_s(self) -> float:
        return self._stepping_s / self.steps if self.steps else 0.0

    @property
    def median_step_s(self) -> float:
        """Of the latest steps of this epoch: what a step takes while nothing disturbs it."""
        return self.percentiles().get("step_p50_s", 0.0)

    def percentiles(self) -> dict[str, float]:
        """Of the latest steps of this epoch."""
        recent = sorted(self._recent[: min(self.steps, RECENT)])
        if not recent:
            return {}
        last = len(recent) - 1
        return {f"step_p{p}_s": recent[round(last * p / 100)] for p in (50, 95, 99)}


def epoch_entry(meter: Meter, *, epoch: int, epoch_s: float, world_size: int, dataset_size: int) -> dict[str, Any]:
    """What is measured of one epoch, in the names of `core.events.EpochEnded`. `epoch` counts those done."""
    if meter.samples_said:
        samples_per_s = meter.samples_said * world_size / epoch_s if epoch_s > 0 else 0.0
    else:
        samples_per_s = dataset_size / epoch_s if epoch_s > 0 else 0.0
    return {"epoch": epoch, "count": 1, "epoch_s": epoch_s, "step_s": meter.step_s, "samples_per_s": samples_per_s}


def alike(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether both epochs were trained with the same setting, so that a mean of their times makes sense."""
    return all(first.get(name) == second.get(name) for name in SETTING) and _local(first) == _local(second)


def merge(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Two reports of whole epochs as one: means weighted by count, the latest metrics. Of epochs that were trained in
    different ways, the times of the second: a step of another batch would say nothing of either."""
    a, b = first["count"], second["count"]
    merged = {**first, **second, "count": a + b}
    merged["metrics"] = {**first.get("metrics", {}), **second.get("metrics", {})}
    if not alike(first, second):
        return merged

    def mean(of: dict[str, Any], and_of: dict[str, Any], name: str) -> float:
        return float((of.get(name, 0.0) * a + and_of.get(name, 0.0) * b) / (a + b))

    for name in ("epoch_s", "step_s", "samples_per_s", "goodput"):
        if name in first or name in second:
            merged[name] = mean(first, second, name)
    if second.get("batching"):  # waiting is a part of the mean step, not of the last one
        merged["batching"] = {**second["batching"], "sync_s": mean(first["batching"], second["batching"], "sync_s")}
    return merged


def _local(entry: dict[str, Any]) -> int:
    batching = entry.get("batching")
    return int(batching["local"]) if batching else 0
