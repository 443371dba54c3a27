"""Speeds of one job from its fit: the curve on as few nodes as possible, and the rate on any spread.

`speed.book` makes them; policies read the curve, forecasts and placement the rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import log, log2

import numpy as np

from swell.core.snapshot import Curve
from swell.speed.fit import Fit, correction_at
from swell.speed.step_time import Floats


@lru_cache(maxsize=64)
def _sizes(max_gpus: int, per_node: int) -> tuple[Floats, Floats, Floats]:
    """1 … max GPUs, the logarithms of that, and 1 where they are on more than one node."""
    gpus = np.arange(1, max_gpus + 1, dtype=float)
    return gpus, np.log2(gpus), (gpus > per_node).astype(float)


class FittedSpeed:
    """Implements `core.snapshot.Speed`. The same object until something new is learned; curves are made on demand."""

    __slots__ = ("_curves", "_max_gpus", "_unit", "fit", "gpus_per_node")

    def __init__(self, fit: Fit, max_gpus: int, gpus_per_node: Mapping[str, int]) -> None:
        self.fit = fit
        self._max_gpus = max(1, max_gpus)
        self.gpus_per_node = gpus_per_node
        self._curves: dict[str, Curve] = {}
        self._unit = correction_at(fit.corrections.get(fit.reference_type, ()), 1)

    def curve(self, gpu_type: str) -> Curve:
        found = self._curves.get(gpu_type)
        if found is None:
            found = self._curves[gpu_type] = self._make(gpu_type)
        return found

    def rate(self, gpus: int, nodes: int, gpu_type: str) -> float:
        time = self.fit.shape.time(gpus, nodes) * correction_at(self.fit.corrections.get(gpu_type, ()), max(1, gpus))
        return self.fit.type_speed(gpu_type) * self._unit / time

    def _make(self, gpu_type: str) -> Curve:
        """The curve, never decreasing: a size that would be slower than a smaller one counts as fast as that one."""
        shape = self.fit.shape
        gpus, logs, several = _sizes(self._max_gpus, max(1, self.gpus_per_node.get(gpu_type, self._max_gpus)))
        time = shape.a / gpus + shape.b + shape.c * logs + shape.d * several
        measured = self.fit.corrections.get(gpu_type)
        if measured:
            known = [log2(gpus) for gpus, _, _ in measured]
            time = time * np.exp(np.interp(logs, known, [log(ratio) for _, _, ratio in measured]))
        speed = self.fit.type_speed(gpu_type) * self._unit / np.maximum(time, 1e-9)
        return (0.0, *np.maximum.accumulate(speed).tolist())
