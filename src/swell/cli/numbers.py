"""Numbers as options take them, named as what they are: `integer range` reads like an invitation to write 1-4."""

from __future__ import annotations

import math
from typing import Any

import click


class Count(click.IntRange):
    """A whole number within bounds."""

    name = "integer"


class Amount(click.FloatRange):
    """A number within bounds. Neither nan, which every bound lets through, nor infinity: both would never end."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number with an end", param, ctx)
        return number


PORT = Count(0, 65535)
PART = Amount(0, 1)
"""Of a whole."""
