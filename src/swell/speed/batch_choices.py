"""Batch sizes that an adaptive job may choose on any number of GPUs, and the step time of each.

`speed.adaptive` calls it. Step times change seldom and gradient noise with almost every report, so step times are
cached per step model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from swell.speed.step_time import Floats, StepModel

BATCHES = 16
"""Batch sizes considered, spaced evenly on a logarithmic scale between the smallest and the largest."""
Sizes = tuple[tuple[int, int], ...]
"""(GPUs, nodes) of each size."""
KEPT = 64
"""Cached tables of each kind: enough for those in use at a time; for 1,024 GPUs about 17 MB."""
_EVENLY = np.linspace(0.0, 1.0, BATCHES)[:, None]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a job's choice: samples of a batch, and of one GPU's part of it (`local_max` 0: unset)."""

    initial: int
    largest: int
    local_min: int
    local_max: int


@dataclass(frozen=True, slots=True)
class Choices:
    """Tables with a row per batch and a column per size."""

    batch: Floats
    local: Floats
    accumulate: Floats


@lru_cache(maxsize=KEPT)
def packed(max_gpus: int, per_node: int) -> Sizes:
    """The sizes of 1 … max GPUs, on as few nodes as possible."""
    return tuple((k, -(-k // max(1, per_node))) for k in range(1, max_gpus + 1))


@lru_cache(maxsize=KEPT)
def choices(bounds: Bounds, sizes: Sizes) -> Choices:
    gpus = np.array([float(k) for k, _ in sizes])
    smallest = np.minimum(np.maximum(bounds.initial, max(1, bounds.local_min) * gpus), bounds.largest)
    batch = smallest * (bounds.largest / smallest) ** _EVENLY
    most = bounds.local_max or bounds.largest
    accumulate = np.maximum(np.ceil(batch / gpus / most - 1e-9) - 1.0, 0.0)
    return Choices(batch, batch / gpus / (accumulate + 1.0), accumulate)


@lru_cache(maxsize=KEPT)
def steps(model: StepModel, bounds: Bounds, sizes: Sizes) -> tuple[Floats, Floats]:
    """Seconds of a step with each choice, and seconds per sample."""
    found = choices(bounds, sizes)
    network = np.array([model.network_s(nodes, k) for k, nodes in sizes])
    step_s = model.steps_s(network, found.local, found.accumulate)
    return step_s, step_s / found.batch
