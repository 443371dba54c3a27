"""The result of a fit of epoch times: a relative shape, the time of an epoch, and relative speeds of GPU types.

`speed.fitting` makes fits, `speed.curves` and `speed.remaining` read them. Plain values, without access to events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp, log
from statistics import median

from swell.speed.epoch_time import DEFAULT_SHAPE, Shape
from swell.speed.gpu_type_ratios import NOTHING_COMPARED, TypeRatios

Corrections = tuple[tuple[int, int, float], ...]
"""(GPUs, nodes, measured time divided by that of the shape), in order of GPUs, each size on its fewest nodes."""


def correction_at(corrections: Corrections, gpus: int) -> float:
    """The correction at this size: interpolated between measured sizes, constant beyond them."""
    if not corrections:
        return 1.0
    below = above = corrections[0]
    for above in corrections:
        if gpus <= above[0]:
            break
        below = above
    if gpus <= below[0] or gpus >= above[0]:
        return above[2]
    part = log(gpus / below[0]) / log(above[0] / below[0])
    return float(below[2] * (above[2] / below[2]) ** part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """`shape` is relative (1 on one reference GPU). `unit_1_s`: the time of a unit of work there (see `Measurements`),
    0 if unknown. `first_epoch_1_s`: the time of the first epoch of a family's jobs there."""

    shape: Shape = DEFAULT_SHAPE
    unit_1_s: float = 0.0
    first_epoch_1_s: float = 0.0
    spread: float = 0.5  # relative deviation of one epoch from the prediction
    points: int = 0  # configurations measured
    epochs: int = 0  # epochs measured
    reference_type: str = ""
    type_speeds: Mapping[str, float] = field(default_factory=dict)  # relative to the reference, where measured
    type_ratios: TypeRatios = NOTHING_COMPARED  # of other families, for types without measurements
    optimism: float = 0.0  # about those types: see `known_gpu_types.OPTIMISM`
    corrections: Mapping[str, Corrections] = field(default_factory=dict)  # by type, where the shape does not fit
    _guesses: dict[str, float] = field(default_factory=dict, init=False, compare=False, repr=False)  # a cache

    def type_speed(self, gpu_type: str) -> float:
        """The speed of a type relative to the reference type."""
        if not self.reference_type or gpu_type == self.reference_type:
            return 1.0
        found = self.type_speeds.get(gpu_type) or self._guesses.get(gpu_type)
        if found is None:
            found = self._guesses[gpu_type] = exp(self.type_ratios.guess(self.log_speeds, gpu_type, self.optimism))
        return found

    @property
    def log_speeds(self) -> dict[str, float]:
        """The measured speeds of types, with their corrections."""
        return {
            t: log(self.type_speed(t) / self._slower(t)) for t in {self.reference_type: 1.0} | dict(self.type_speeds)
        }

    def _slower(self, gpu_type: str) -> float:
        corrections = self.corrections.get(gpu_type)
        return median(ratio for _, _, ratio in corrections) if corrections else 1.0


NOTHING_KNOWN = Fit()
