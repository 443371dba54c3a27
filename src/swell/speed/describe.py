"""Describes a job's speed for people: the curve, the measured points, their certainty, and the remaining time.

`Book.describe` calls it for `swell show` and the dashboard. It reads fits and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from swell.core.snapshot import Curve
from swell.core.state import JobRecord
from swell.ports import LastingBook, Remaining
from swell.speed.curves import FittedSpeed
from swell.speed.families import Family
from swell.speed.fit import Fit
from swell.speed.measurements import Measurements

WITHIN = 1.28
"""Standard deviations on each side: the interval contains the end of four jobs of five, if the deviation is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    gpus: int
    nodes: int
    gpu_type: str
    batch_size: int
    epochs: int
    epoch_s: float  # mean
    spread: float  # relative
    speed: float  # as measured, in the unit of the curve


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """`source`: the basis of the curve (measured, family or prior). `confidence` is from 0 to 1."""

    family: str
    reference_type: str
    source: str
    confidence: float
    curves: Mapping[str, Curve]
    points: tuple[Measured, ...] = ()
    epoch_1_s: float = 0.0
    remaining: Remaining = field(default_factory=lambda: Remaining(at_speed_1_s=0.0, as_of_s=0.0))
    remaining_low_s: float = 0.0
    remaining_high_s: float = 0.0


class DescribedBook(LastingBook, Protocol):
    """A speed book that can describe a job's speed for people."""

    def describe(self, job: JobRecord, gpus_per_node: Mapping[str, int]) -> Description: ...


def describe(
    measurements: Measurements, speed: FittedSpeed, remaining: Remaining, family: Family, types: tuple[str, ...]
) -> Description:
    fit = speed.fit
    unit_1_s = fit.unit_1_s or _unit_1_s(measurements, speed)
    measured = tuple(
        Measured(
            gpus=key.gpus,
            nodes=key.nodes,
            gpu_type=key.gpu_type,
            batch_size=key.batch_size,
            epochs=times.count,
            epoch_s=times.mean_s,
            spread=times.spread,
            speed=unit_1_s / times.typical_s,
        )
        for key, times in sorted(measurements.times.items())
    )
    source = "measured" if measured else "family" if family.fit is not None else "prior"
    factor = 1.0 + WITHIN * remaining.sigma
    return Description(
        family=family.name,
        reference_type=fit.reference_type,
        source=source,
        confidence=_confidence(fit, source),
        curves={gpu_type: speed.curve(gpu_type) for gpu_type in types or (fit.reference_type,)},
        points=measured,
        epoch_1_s=measurements.epoch_1_s(unit_1_s) or fit.first_epoch_1_s,
        remaining=remaining,
        remaining_low_s=remaining.at_speed_1_s / factor,
        remaining_high_s=remaining.at_speed_1_s * factor,
    )


def _unit_1_s(measurements: Measurements, speed: FittedSpeed) -> float:
    """The unit that scales the measurements to the curve, if the curve does not come from them alone."""
    found = [t.typical_s * speed.rate(key.gpus, key.nodes, key.gpu_type) for key, t in measurements.times.items()]
    return median(found) if found else 0.0


def _confidence(fit: Fit, source: str) -> float:
    """Grows with measured configurations and epochs; half as much if only the family was measured."""
    known = fit.points / (fit.points + 1.0) * fit.epochs / (fit.epochs + 2.0)
    return round({"measured": 1.0, "family": 0.5, "prior": 0.0}[source] * known, 3)
