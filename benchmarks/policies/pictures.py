"""The pictures of `make bench-tables` and `make bench-policies`, as small SVG files: points are thinned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.policies.runs import (
    ADAPTIVE_LEARNING,
    ADAPTIVE_TOLD,
    BIN_S,
    COLUMNS,
    FIXED_TOLD,
    LOADS,
    Bench,
    Choice,
    Column,
    Kept,
)
from benchmarks.policies.tables import FOR_LOADS, FOR_SIA, PUBLISHED_POLLUX, mean
from swell.sim.report import pyplot

SHOWN = ("swell", "srjf", "afs-l", "elastic-fifo", "tiresias", "sia")
"""Few enough to tell their lines apart."""
COLOURS = {
    "swell": "#d62728",
    "srjf": "#1f77b4",
    "afs-l": "#2ca02c",
    "elastic-fifo": "#ff7f0e",
    "tiresias": "#9467bd",
    "elastic-srjf": "#17becf",
    "sia": "#8c564b",
}
FRONTIER = {"makespan_s": "makespan, s", "gpu_hours_per_job": "GPU hours per job"}
POINTS = 100
"""Of a line of a distribution."""


def draw_all(bench: Bench, directory: Path, choice: Choice) -> list[Path]:
    """Those for which something was measured."""
    return [
        directory / name
        for name, picture in PICTURES.items()
        if _save(directory / name, picture.size, picture.panels, partial(picture.draw, bench=bench, choice=choice))
    ]


def draw_frontier(points: Sequence[tuple[float, Sequence[Kept]]], path: Path) -> None:
    """Makespan and GPU hours against the mean, one point per value of `efficiency`; none if nothing was measured."""

    def draw(axes: Any) -> bool:
        means = [mean(kept, "mean_jct_s") for _, kept in points]
        for panel, (key, title) in zip(axes, FRONTIER.items(), strict=True):
            values = [mean(kept, key) for _, kept in points]
            panel.plot(means, values, "o-", color=COLOURS["swell"])
            for (efficiency, _), x, y in zip(points, means, values, strict=True):
                panel.annotate(f"{efficiency:g}", (x, y), textcoords="offset points", xytext=(4, 4))
            panel.set_xlabel("mean completion time, s")
            panel.set_ylabel(title)
        return bool(points)

    _save(path, (8.0, 3.2), (1, len(FRONTIER)), draw)


def _save(path: Path, size: tuple[float, float], panels: tuple[int, int], draw: Callable[[Any], bool]) -> bool:
    plt = pyplot()
    plt.rcParams["svg.fonttype"] = "none"
    figure, axes = plt.subplots(*panels, figsize=size, constrained_layout=True, squeeze=False)
    drawn = draw(axes.flatten())
    if drawn:
        figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return drawn


def _legend(panel: Any) -> None:
    if panel.get_legend_handles_labels()[1]:
        panel.legend(fontsize="small")


def _bars(panel: Any, title: str, found: Mapping[str, Sequence[Kept]]) -> bool:
    bars = sorted((mean(kept, "mean_jct_s"), policy) for policy, kept in found.items() if kept)
    colours = ["#d62728" if policy == "swell" else "#8da9c4" for _, policy in bars]
    panel.barh([policy for _, policy in bars], [seconds for seconds, _ in bars], color=colours)
    for index, (seconds, _) in enumerate(bars):
        panel.text(seconds, index, f" {seconds:.0f}", va="center", fontsize=8)
    panel.invert_yaxis()
    panel.margins(x=0.12)
    panel.set(title=title, xlabel="mean completion time, s")
    return bool(bars)


def _means(axes: Any, bench: Bench, choice: Choice) -> bool:
    drawn = False
    for panel, column in zip(axes, COLUMNS, strict=True):
        found = {policy: bench.measure(bench.pollux(policy, column)) for policy in choice.policies}
        drawn = _bars(panel, column.title, found) or drawn
        if column.adaptive:
            published_s = sum(PUBLISHED_POLLUX) / len(PUBLISHED_POLLUX)
            panel.axvline(published_s, color="black", linewidth=0.8, linestyle="--", label="Pollux, as published")
            panel.legend(fontsize="small", loc="upper right")
    return drawn


def _distribution(panel: Any, bench: Bench, choice: Choice, column: Column, key: str, unit: float) -> bool:
    drawn = False
    for policy in choice.of(SHOWN):
        kept = bench.measure(bench.pollux(policy, column))
        if kept:
            values = sorted(value / unit for one in kept for value in _list(one, key))
            panel.step(*thinned(values), where="post", label=policy, color=COLOURS[policy], linewidth=1.0)
            drawn = True
    panel.set(xscale="log", title=column.title, ylabel="part of the jobs")
    _legend(panel)
    return drawn


def thinned(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """The distribution of sorted values at `POINTS` heights, always with its last value."""
    count = len(values)
    picked = sorted({min(count - 1, round(i * (count - 1) / POINTS)) for i in range(POINTS + 1)})
    return [values[i] for i in picked], [(i + 1) / count for i in picked]


def _list(kept: Kept, key: str) -> Sequence[float]:
    values = kept[key]
    assert isinstance(values, list)  # as it was kept
    return values


def _distributions(axes: Any, bench: Bench, choice: Choice, key: str, unit: float, label: str) -> bool:
    drawn = False
    for panel, column in zip(axes, (FIXED_TOLD, ADAPTIVE_LEARNING), strict=True):
        drawn = _distribution(panel, bench, choice, column, key, unit) or drawn
        panel.set(xlabel=label)
    return drawn


def _completion(axes: Any, bench: Bench, choice: Choice) -> bool:
    return _distributions(axes, bench, choice, "jct_each_s", 3600.0, "completion time, hours")


def _fairness(axes: Any, bench: Bench, choice: Choice) -> bool:
    drawn = _distributions(axes, bench, choice, "rho_each", 1.0, "finish-time fairness ρ")
    for panel in axes:
        panel.axvline(1.0, color="grey", linewidth=0.8)
    return drawn


def _utilisation(axes: Any, bench: Bench, choice: Choice) -> bool:
    drawn = False
    for panel, column in zip(axes, (FIXED_TOLD, ADAPTIVE_LEARNING), strict=True):
        for policy in choice.of(SHOWN[:4]):
            for one in bench.measure(bench.pollux(policy, column))[:1]:
                used = _list(one, "used")
                hours = [i * BIN_S / 3600 for i in range(len(used))]
                panel.step(hours, used, where="post", label=policy, color=COLOURS[policy], linewidth=0.9)
                drawn = True
        panel.set(title=column.title, xlabel="hours", ylabel="part of the GPUs held", ylim=(0, 1.05))
        _legend(panel)
    return drawn


def _loads(axes: Any, bench: Bench, choice: Choice) -> bool:
    drawn = False
    for panel, column in zip(axes, (FIXED_TOLD, ADAPTIVE_LEARNING), strict=True):
        for policy in choice.of(FOR_LOADS):
            found = [(load, bench.measure(bench.pollux(policy, column, load))) for load in LOADS]
            points = [(load, mean(kept, "mean_jct_s")) for load, kept in found if kept]
            if points:
                panel.plot(*zip(*points, strict=True), marker="o", markersize=3, label=policy, color=COLOURS[policy])
                drawn = True
        panel.set(title=column.title, xlabel="load", ylabel="mean completion time, s", yscale="log")
        _legend(panel)
    return drawn


def _sia(axes: Any, bench: Bench, choice: Choice) -> bool:
    drawn = False
    for panel, column in zip(axes, (ADAPTIVE_TOLD, ADAPTIVE_LEARNING), strict=True):
        found = {policy: bench.measure(bench.sia(policy, column)) for policy in choice.of(FOR_SIA)}
        drawn = _bars(panel, column.title, found) or drawn
    return drawn


@dataclass(frozen=True, slots=True)
class Picture:
    draw: Callable[..., bool]  # (axes, bench, choice): false if there is nothing to show
    panels: tuple[int, int]
    size: tuple[float, float]  # inches


PICTURES: Mapping[str, Picture] = {
    "policies-mean.svg": Picture(_means, (2, 2), (11, 8)),
    "policies-completion.svg": Picture(_completion, (1, 2), (11, 4)),
    "policies-fairness.svg": Picture(_fairness, (1, 2), (11, 4)),
    "policies-gpus.svg": Picture(_utilisation, (2, 1), (11, 6)),
    "policies-loads.svg": Picture(_loads, (1, 2), (11, 4)),
    "policies-sia.svg": Picture(_sia, (1, 2), (11, 3.2)),
}
