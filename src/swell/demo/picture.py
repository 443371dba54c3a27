"""GPUs over time as a picture in the terminal: a row per job, a column per moment, a digit for the slots it held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

COLOURS = ("cyan", "green", "magenta", "yellow", "red", "blue", "bright_cyan", "bright_green", "bright_magenta")


def timeline(samples: Sequence[Mapping[str, int]], names: Sequence[str], width: int) -> Text:
    """Each sample says how many slots each job held. A dot: submitted and waiting; blank: not there."""
    text = Text()
    label = max(map(len, names), default=0)
    columns = min(width - label - 3, len(samples))
    for row, name in enumerate(names):
        text.append(f"{name:>{label}} |")
        for column in range(columns):
            sample = samples[column * len(samples) // columns]
            text.append(*_cell(sample.get(name), COLOURS[row % len(COLOURS)]))
        text.append("|\n")
    return text


def _cell(held: int | None, colour: str) -> tuple[str, str]:
    if held is None:
        return " ", ""
    if held == 0:
        return "·", "dim"
    return str(min(held, 9)), f"black on {colour}"
