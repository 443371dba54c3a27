"""Speed ratios between GPU types, learned from families that have used several, for families that have not.

`speed.book` builds the ratios, and fits use them for types without measurements; a family's own measurement is never
overridden. In logarithms, a family's speed on a type is a level of its own plus the type's level. Levels of types are
medians over families (Tukey's median polish): one odd family does not move them, and a type that was compared only with
a second one is still comparable with a third. The table of known types counts as one more family. Types that no family
has compared keep their level from the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from math import log, sqrt
from statistics import fmean, median

from swell.speed.known_gpu_types import OPTIMISM, SPREAD, known_speed, prior_speed

LogSpeeds = Mapping[str, float]
"""By GPU type; only differences are meaningful."""

FARTHEST = 3.0
"""A family's distance from the others is limited to this (a factor of 20); larger ones come from wrong clocks."""
ROUNDS, SETTLED = 50, 1e-4
"""The polish ends after this number of rounds, or when levels change by less than this."""
TELLING = 0.05
"""Smaller changes are not published, because that computes all estimates again."""


@dataclass(frozen=True, slots=True)
class TypeRatios:
    levels: LogSpeeds = field(default_factory=dict)
    spreads: Mapping[tuple[str, str], float] = field(default_factory=dict)  # of families around the levels' difference

    def level(self, gpu_type: str) -> float:
        found = self.levels.get(gpu_type)
        return found if found is not None else log(prior_speed(gpu_type))

    def guess(self, measured: LogSpeeds, gpu_type: str, optimism: float = OPTIMISM) -> float:
        """The log speed of a family with these measurements on a type that it has not measured."""
        own = fmean(speed - self.level(known) for known, speed in measured.items())
        spread = min(self.spreads.get((known, gpu_type), SPREAD) for known in measured)
        return own + self.level(gpu_type) + optimism * spread

    def differs(self, other: TypeRatios) -> bool:
        if self.levels.keys() != other.levels.keys() or self.spreads.keys() != other.spreads.keys():
            return True
        pairs = [(self.levels[t], other.levels[t]) for t in self.levels]
        pairs += [(self.spreads[t], other.spreads[t]) for t in self.spreads]
        return any(abs(one - two) > TELLING for one, two in pairs)


NOTHING_COMPARED = TypeRatios()
"""The ratios of the table of known types."""


def type_ratios_of(families: Sequence[LogSpeeds]) -> TypeRatios:
    """The ratios from families that have each measured more than one type."""
    types = sorted({gpu_type for speeds in families for gpu_type in speeds})
    prior = {gpu_type: log(prior_speed(gpu_type)) for gpu_type in types}
    table = {gpu_type: prior[gpu_type] for gpu_type in types if known_speed(gpu_type)}
    families = [*families, table] if len(table) > 1 else families
    levels, before = prior, prior
    for _ in range(ROUNDS):
        found = _beside(families, levels)
        levels, before = {t: median(found[t]) for t in types}, levels
        if all(abs(levels[t] - before[t]) < SETTLED for t in types):
            break
    # Relative to types that no family has compared, these keep the levels of the table.
    shift = median(prior[t] - levels[t] for t in types) if types else 0.0
    spreads = {pair: _spread(families, levels, *pair) for pair in permutations(types, 2)}
    return TypeRatios({t: levels[t] + shift for t in types}, spreads)


def _beside(families: Sequence[LogSpeeds], levels: LogSpeeds) -> dict[str, list[float]]:
    """The families' speeds by type, each minus the family's own level."""
    found: dict[str, list[float]] = {t: [] for t in levels}
    for speeds in families:
        own = median(speed - levels[t] for t, speed in speeds.items())
        for t, speed in speeds.items():
            found[t].append(speed - own)
    return found


def _spread(families: Sequence[LogSpeeds], levels: LogSpeeds, one: str, two: str) -> float:
    """The deviation of families from the levels' difference between two types."""
    both = [speeds for speeds in families if one in speeds and two in speeds]
    rests = [speeds[one] - speeds[two] - levels[one] + levels[two] for speeds in both]
    return sqrt((SPREAD**2 + sum(min(abs(rest), FARTHEST) ** 2 for rest in rests)) / (1.0 + len(rests)))
