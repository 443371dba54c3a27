"""The last values of something that is measured again and again."""

from __future__ import annotations

from dataclasses import dataclass, field

KEPT = 5


@dataclass(slots=True)
class Last:
    """The last values, and the typical one of them."""

    values: list[tuple[float, ...]] = field(default_factory=list)
    typical: tuple[float, ...] = ()

    def add(self, *value: float) -> None:
        values = self.values = [*self.values[1 - KEPT :], value]
        if len(values) == 1:
            self.typical = value
            return
        middle, odd = divmod(len(values), 2)
        ranked = map(sorted, zip(*values, strict=True))
        self.typical = tuple([r[middle] if odd else (r[middle - 1] + r[middle]) / 2 for r in ranked])
