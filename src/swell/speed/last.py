"""The last values of something that is measured again and again."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

KEPT = 5


@dataclass(slots=True)
class Last:
    """The last values, and the typical one of them."""

    values: list[tuple[float, ...]] = field(default_factory=list)
    typical: tuple[float, ...] = ()

    def add(self, *value: float) -> None:
        self.values = [*self.values[1 - KEPT :], value]
        self.typical = tuple(map(median, zip(*self.values, strict=True)))
