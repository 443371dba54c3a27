"""The tables of `make bench-tables`. A row is there if everything it sums up was measured."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from benchmarks.policies.forecast_backtest import Told, Verdict, apart, verdict
from benchmarks.policies.runs import (
    ADAPTIVE_LEARNING,
    ADAPTIVE_TOLD,
    FIXED_LEARNING,
    FIXED_TOLD,
    LOADS,
    Bench,
    Choice,
    Kept,
)
from swell.sim.forecast_calibration import COVERAGE

FOR_SIA = ("swell", "sia", "max-min", "afs-l", "elastic-fifo", "srjf")
FOR_SIA_FIXED = ("swell", "sia", "max-min")
FOR_LOADS = ("swell", "afs-l", "srjf", "elastic-srjf", "tiresias", "elastic-fifo")
FOR_UNSEEN = ("swell", "srjf", "afs-l", "elastic-srjf", "sia")
FOR_UNSEEN_SIA = ("swell", "sia")
UNSEEN_DRAW = 1
FOR_FORECASTS = ("swell", "elastic-fifo")
PUBLISHED_TIRESIAS = (2474, 5145, 3876, 3280)
PUBLISHED_OPTIMUS = (4087, 6914, 3944, 5968)
PUBLISHED_POLLUX = (2089, 3323, 2188, 2721)


def figure(kept: Kept, key: str) -> float:
    return float(str(kept[key]))


def mean(kept: Sequence[Kept], key: str) -> float:
    return sum(figure(one, key) for one in kept) / len(kept)


def worst_rho(kept: Sequence[Kept]) -> float:
    return max(figure(one, "worst_rho") for one in kept)


def faithful(bench: Bench, choice: Choice) -> list[str]:
    lines = ["| policy | | 1 | 2 | 3 | 4 |", "|---|---|---|---|---|---|"]
    for policy, published in (("tiresias", PUBLISHED_TIRESIAS), ("optimus", PUBLISHED_OPTIMUS)):
        if policy not in choice.policies or not (kept := bench.measure(bench.published(policy))):
            continue
        ours = [figure(one, "mean_jct_s") for one in kept]
        lines.append(f"| {policy} | published | " + " | ".join(f"{p}" for p in published) + " |")
        lines.append("| | ours | " + " | ".join(f"{o:.0f}" for o in ours) + " |")
        off = (f"{100 * (o / p - 1):+.1f} %" for o, p in zip(ours, published, strict=True))
        lines.append("| | difference | " + " | ".join(off) + " |")
    return lines


def overview(bench: Bench, choice: Choice) -> list[str]:
    """One line a policy: mean completion time in each column, and finish-time fairness."""
    return [*_overview_head(choice), *_overview_rows(bench, choice, choice.policies)]


def _overview_head(choice: Choice) -> list[str]:
    return [
        "Mean JCT in s over the four workloads; in brackets worst ρ and the part of the jobs with ρ > 1.",
        "",
        "| policy | " + " | ".join(column.title for column in choice.columns) + " |",
        "|---" * (len(choice.columns) + 1) + "|",
    ]


def _overview_rows(bench: Bench, choice: Choice, policies: Sequence[str], draw: int = 0) -> list[str]:
    lines: list[str] = []
    found = {p: [bench.measure(bench.pollux(p, c, draw=draw)) for c in choice.columns] for p in policies}
    for policy in sorted(found, key=lambda policy: _total(found[policy])):
        cells = [_fair_cell(kept) for kept in found[policy]]
        if any(cells):
            lines.append(f"| {policy} | " + " | ".join(cells) + " |")
    return lines


def _total(columns: Sequence[Sequence[Kept]]) -> float:
    """Best first, by the columns that were measured."""
    means = [mean(kept, "mean_jct_s") for kept in columns if kept]
    return sum(means) / len(means) if means else 0.0


def _fair_cell(kept: Sequence[Kept]) -> str:
    if not kept:
        return ""
    return f"{mean(kept, 'mean_jct_s'):.0f} ({worst_rho(kept):.1f}, {100 * mean(kept, 'rho_above_1'):.0f} %)"


def best(bench: Bench, choice: Choice) -> list[str]:
    lines: list[str] = []
    for column in choice.columns:
        found = {policy: bench.measure(bench.pollux(policy, column)) for policy in choice.policies}
        lines += ["", f"**{column.title}**", "", *_policy_table(found)]
        if column.adaptive:
            published = sum(PUBLISHED_POLLUX) / len(PUBLISHED_POLLUX)
            each = " ".join(map(str, PUBLISHED_POLLUX))
            lines.append(f"| *Pollux, as published* | {published:.0f} | {each} | | | | | | |")
    return lines


def _policy_table(found: Mapping[str, Sequence[Kept]]) -> list[str]:
    lines = [
        "| policy | mean JCT s | each workload | p99 h | restarts/job | GPU h/job | worst ρ | ρ > 1 | CPU s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    measured = {policy: kept for policy, kept in found.items() if kept}
    for policy in sorted(measured, key=lambda policy: mean(measured[policy], "mean_jct_s")):
        some = measured[policy]
        each = " ".join(f"{figure(one, 'mean_jct_s'):.0f}" for one in some)
        p99_h = mean(some, "p99_jct_s") / 3600
        lines.append(
            f"| {policy} | **{mean(some, 'mean_jct_s'):.0f}** | {each} | {p99_h:.1f} |"
            f" {mean(some, 'restarts_per_job'):.2f} | {mean(some, 'gpu_hours_per_job'):.2f} |"
            f" {worst_rho(some):.2f} | {100 * mean(some, 'rho_above_1'):.0f} % |"
            f" {mean(some, 'cpu_s'):.1f} |"
        )
    return lines


def loads(bench: Bench, choice: Choice) -> list[str]:
    lines: list[str] = []
    for column in (FIXED_TOLD, ADAPTIVE_LEARNING):
        if column not in choice.columns:
            continue
        lines += ["", f"**{column.title}**: mean JCT in s over the four workloads (worst ρ)", ""]
        lines += ["| policy | " + " | ".join(f"{load:g}×" for load in LOADS) + " |", "|---" * (len(LOADS) + 1) + "|"]
        for policy in choice.of(FOR_LOADS):
            cells = [_load_cell(bench.measure(bench.pollux(policy, column, load))) for load in LOADS]
            lines += [f"| {policy} | " + " | ".join(cells) + " |"] if any(cells) else []
    return lines


def _load_cell(kept: Sequence[Kept]) -> str:
    if not kept:
        return ""
    return f"{mean(kept, 'mean_jct_s'):.0f} ({worst_rho(kept):.1f})"


def heterogeneous(bench: Bench, choice: Choice) -> list[str]:
    names = ", ".join(f"{path.parent.name}/{path.stem.rpartition('-')[2]}" for path in bench.sia_workloads())
    lines = [f"Each workload, in this order: {names}."]
    for column in (ADAPTIVE_TOLD, ADAPTIVE_LEARNING, FIXED_TOLD, FIXED_LEARNING):
        policies = FOR_SIA if column.adaptive else FOR_SIA_FIXED
        if column in choice.columns:
            found = {policy: bench.measure(bench.sia(policy, column)) for policy in choice.of(policies)}
            lines += ["", f"**{column.title}**", "", *_policy_table(found)]
    return lines


def unseen(bench: Bench, choice: Choice) -> list[str]:
    """Nobody chose anything by these."""
    lines = [*_overview_head(choice), *_overview_rows(bench, choice, choice.of(FOR_UNSEEN), UNSEEN_DRAW)]
    for column in (ADAPTIVE_TOLD, ADAPTIVE_LEARNING, FIXED_LEARNING):
        if column in choice.columns:
            found = {p: bench.measure(bench.sia(p, column, UNSEEN_DRAW)) for p in choice.of(FOR_UNSEEN_SIA)}
            lines += ["", f"**Sia workloads, {column.title}**", "", *_policy_table(found)]
    return lines


def fast(bench: Bench, choice: Choice) -> list[str]:
    lines = list(_SPEED_HEAD)
    for policy in choice.of(("fifo", "swell")):
        lines += [_speed_row("Philly", policy, one) for one in bench.measure(bench.philly(policy))]
    return lines


def growth(bench: Bench, choice: Choice) -> list[str]:
    """How simulations of a policy grow with the jobs: the first Pollux workload at each load."""
    lines = list(_SPEED_HEAD)
    for policy in choice.of(FOR_LOADS):
        for load in LOADS:
            found = bench.measure(bench.pollux(policy, FIXED_TOLD, load))
            lines += [_speed_row(f"Pollux 1 × {load:g}", policy, one) for one in found[:1]]
    return lines


_SPEED_HEAD = ("| workload | policy | jobs | events | passes | CPU s | events/s |", "|---|---|---|---|---|---|---|")


def _speed_row(workload: str, policy: str, one: Kept) -> str:
    cpu_s = figure(one, "cpu_s")
    return (
        f"| {workload} | {policy} | {one['jobs']} | {one['events']} | {one['passes']} |"
        f" {cpu_s:.1f} | {figure(one, 'events') / cpu_s:.0f} |"
    )


def forecasts(bench: Bench, choice: Choice) -> list[str]:
    lines = [
        f"Intervals are meant to hold {100 * COVERAGE:.0f} % of the ends. Constants were chosen on workloads 1 and 2.",
        "",
        "| policy | workloads | jobs that | forecasts | inside | first of a job inside | median error"
        " | before calibration | high / low |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for policy in choice.of(FOR_FORECASTS):
        each = bench.backtest(bench.pollux(policy, FIXED_LEARNING))
        for name, some in (("1, 2", each[:2]), ("3, 4", each[2:])):
            lines += _forecast_rows(policy, name, some)
    return lines


def _forecast_rows(policy: str, name: str, some: Sequence[Sequence[Told]]) -> list[str]:
    told = apart(some)
    parts = (
        ("all", told),
        ("wait", [one for one in told if one.waiting]),
        ("run", [one for one in told if not one.waiting]),
    )
    return [_forecast_row(f"| {policy} | {name} | {label} |", verdict(found)) for label, found in parts if found]


def _forecast_row(head: str, said: Verdict) -> str:
    return (
        f"{head} {said.forecasts} | {100 * said.inside:.0f} % | {100 * said.first_inside:.0f} % |"
        f" {100 * said.error:.0f} % | {100 * said.raw_error:.0f} % | {said.width:.1f} |"
    )


SECTIONS: Mapping[str, tuple[str, Callable[[Bench, Choice], list[str]]]] = {
    "faithful": ("Faithful: mean JCT (s) as published and as simulated here", faithful),
    "overview": ("Every policy in every column", overview),
    "best": ("Every policy on the four Pollux workloads", best),
    "loads": ("Other loads", loads),
    "sia": ("Heterogeneous: the shared Sia workloads", heterogeneous),
    "unseen": (f"Unseen: jobs and times drawn anew from each workload (`--draw {UNSEEN_DRAW}`)", unseen),
    "philly": ("Fast: the Philly trace, every virtual cluster", fast),
    "forecast": ("Forecast: fixed batch, learning, every quarter of an hour", forecasts),
    "growth": ("Growth: the first Pollux workload thinned and repeated, fixed batch, told", growth),
}


def page(bench: Bench, parts: Sequence[str], choice: Choice) -> str:
    said = f"Measured {datetime.now(UTC):%Y-%m-%d} with Python {platform.python_version()} by `make bench-tables`."
    lines = ["# Tables of policies on public workloads", "", f"{said} What they say: [simulator](simulator.md).", ""]
    for name, (title, make) in SECTIONS.items():
        if name in parts:
            lines += [f"## {title}", "", *make(bench, choice), ""]
    return "\n".join(lines).rstrip() + "\n"
