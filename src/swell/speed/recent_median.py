"""The median of the last few values of a repeated measurement. Everything in `speed` uses it."""

from __future__ import annotations

KEPT = 5


class RecentMedian:
    """The last values and their median, `typical`."""

    __slots__ = ("_values", "typical")

    def __init__(self, value: float) -> None:
        self._values = [value]
        self.typical = value

    def add(self, value: float) -> None:
        values = self._values
        values.append(value)
        if len(values) > KEPT:
            del values[0]
        ranked = sorted(values)
        middle, odd = divmod(len(ranked), 2)
        self.typical = ranked[middle] if odd else (ranked[middle - 1] + ranked[middle]) / 2


def after(before: RecentMedian | None, value: float) -> RecentMedian:
    """Adds a value, which may be the first."""
    if before is None:
        return RecentMedian(value)
    before.add(value)
    return before
