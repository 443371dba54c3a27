"""Small pictures of numbers for a terminal: a line of blocks for a course, bars for sizes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

BLOCKS = "▁▂▃▄▅▆▇█"
EIGHTHS = " ▏▎▍▌▋▊▉█"


def sparkline(values: Sequence[float], width: int) -> str:
    """The course of values, the newest last; more than fit are averaged."""
    points = _fitted([value for value in values if value == value], width)
    if not points:
        return ""
    low, high = min(points), max(points)
    if high <= low:
        return BLOCKS[0] * len(points)
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[round((point - low) / (high - low) * top)] for point in points)


def _fitted(values: Sequence[float], width: int) -> list[float]:
    count = min(width, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)] if count else []
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]


def bar(share: float, width: int) -> str:
    """So much of the width, in eighths of a character."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()
