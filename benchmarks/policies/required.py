"""`make bench-policies`: what the default policy must show, as tables, judged by `required.json`.

    python -m benchmarks.policies.required --data DIR            all of it: about half an hour on two quiet cores
    python -m benchmarks.policies.required --data DIR --quick    a sample: few workloads of each kind, some minutes

Every simulation is kept under `--results`, so that a run that was cut short continues. `--kept` simulates nothing and
writes what there is; what was not measured says so.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from benchmarks.policies import coverage
from benchmarks.policies.forecast_backtest import Verdict, apart
from benchmarks.policies.pictures import draw_frontier
from benchmarks.policies.runs import ADAPTIVE_LEARNING, ADAPTIVE_TOLD, COLUMNS, FIXED_TOLD, Bench, Column, Kept, slug
from benchmarks.policies.tables import figure, mean, worst_rho
from benchmarks.small_clusters import UNGUARDED, Comparison, Results, best_of, better, compare
from swell.sim.simulate import Case

ELASTIC = ("afs-l", "elastic-srjf", "sia")
"""Whose makespan ours is compared with."""
GUARDED = ("afs-l", "elastic-srjf", "sia", "srjf", "tiresias", "elastic-tiresias")
SMALL = (("plain", True), ("plain", False), ("varied", False))
SMALL_OTHERS = ("afs-l", "elastic-srjf")
FIRST_SEED = 4001
"""Of the small workloads: 1001 to 1030 and 2001 to 2030 were looked at."""
EFFICIENCIES = (0.0, 0.25, 0.5, 0.75, 1.0)
Figures = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """How much is measured."""

    seeds: int = 30
    workloads: int = 6
    told: tuple[Column, ...] = COLUMNS


QUICK = Scope(seeds=4, workloads=1, told=(FIXED_TOLD, ADAPTIVE_LEARNING))


class Measured:
    """What was measured, as figures by name (`required.json` has the bars) and as lines of a page."""

    def __init__(self, bench: Bench, results: Path, scope: Scope, *, kept: bool) -> None:
        self._bench, self._results, self._scope, self._kept = bench, results, scope, kept
        self.figures: Figures = {}

    def small(self) -> list[str]:
        lines = ["| workloads | known | over | mean | behind | worst | makespan | GPU h |", "|---" * 8 + "|"]
        results = Results(self._results / "small", ())
        for kind, told in SMALL:
            seeds = range(FIRST_SEED, FIRST_SEED + self._scope.seeds)
            if self._kept and not results.has(kind, seeds, told, SMALL_OTHERS):
                continue
            ours = {seed: results.of(kind, seed, "swell", told, True, {}) for seed in seeds}
            others = {p: {s: better(results, kind, s, p, told) for s in seeds} for p in SMALL_OTHERS}
            found = {policy: compare(ours, theirs) for policy, theirs in others.items()}
            nearest = max(found.values(), key=lambda one: one.mean)
            known = "told" if told else "learning"
            self.figures[f"small.{kind}.{known}.mean"] = nearest.mean
            self.figures[f"small.{kind}.{known}.behind"] = nearest.behind
            lines += [_small_row(kind, known, policy, one) for policy, one in found.items()]
            lines.append(_small_row(kind, known, "the better of them each", compare(ours, best_of(others))))
        return lines

    def public(self, suite: str, columns: Sequence[Column]) -> list[str]:
        """Pollux or Sia: means, tails, makespan, fairness and GPU hours, ours beside the elastic policies'."""
        lines = [
            "| column | policy | mean s | p99 h | makespan s | GPU h | restarts | worst ρ | ρ > 1 |",
            "|---" * 9 + "|",
        ]
        for column in [column for column in columns if column in self._scope.told]:
            found = {policy: self._measure(self._cases(suite, policy, column)) for policy in ("swell", *ELASTIC)}
            lines += [_public_row(column, policy, kept) for policy, kept in found.items() if kept]
            if all(found.values()):
                self.figures |= {f"{suite}.{slug(column)}.{name}": value for name, value in _judged(found).items()}
        return lines

    def guard(self) -> list[str]:
        """Baselines with the starvation guard and without: ours is compared with the better."""
        lines = ["| policy | guarded s | not guarded s | ours over the better |", "|---|---|---|---|"]
        ours = self._measure(self._cases("pollux", "swell", FIXED_TOLD))
        for policy in GUARDED:
            cases = self._cases("pollux", policy, FIXED_TOLD)
            bare = {f"unguarded-{name}": replace(case, options=UNGUARDED) for name, case in cases.items()}
            means = [mean(kept, "mean_jct_s") for kept in (self._measure(cases), self._measure(bare)) if kept]
            if ours and len(means) == 2:
                ratio = mean(ours, "mean_jct_s") / min(means)
                lines.append(f"| {policy} | {means[0]:.0f} | {means[1]:.0f} | {ratio:.3f} |")
        return lines

    def frontier(self, picture: Path) -> list[str]:
        lines = ["| `efficiency` | mean s | makespan s | GPU h per job | restarts | worst ρ |", "|---" * 6 + "|"]
        points: list[tuple[float, Sequence[Kept]]] = []
        for efficiency in EFFICIENCIES:
            cases = self._cases("pollux", "swell", FIXED_TOLD)
            if efficiency:
                options = {"efficiency": efficiency}
                cases = {f"e{efficiency:g}-{name}": replace(c, policy_options=options) for name, c in cases.items()}
            if kept := self._measure(cases):
                points.append((efficiency, kept))
        for efficiency, kept in points:
            means = [mean(kept, key) for key in ("mean_jct_s", "makespan_s", "gpu_hours_per_job", "restarts_per_job")]
            lines.append(
                "| {:g} | {:.0f} | {:.0f} | {:.2f} | {:.2f} |".format(efficiency, *means) + f" {worst_rho(kept):.2f} |"
            )
        draw_frontier(points, picture)
        return lines

    def coverage(self) -> list[str]:
        head = "| jobs | forecast when | forecasts | inside | median error | high / low | unknown |"
        lines = [head, "|---" * 7 + "|"]
        for kind, (cases, every_s) in coverage.cases(
            self._bench, self._results / "forecast", self._scope.seeds
        ).items():
            told = apart(self._bench.backtest(cases, every_s))
            if not told:
                continue
            verdicts = coverage.by_age(told)
            self.figures[f"coverage.{kind}"] = verdicts["all"].inside
            lines += [_coverage_row(kind, age, one) for age, one in verdicts.items()]
        return lines

    def _cases(self, suite: str, policy: str, column: Column) -> dict[str, Case]:
        make = self._bench.pollux if suite == "pollux" else self._bench.sia
        return dict(list(make(policy, column).items())[: self._scope.workloads])

    def _measure(self, cases: Mapping[str, Case]) -> Sequence[Kept]:
        return self._bench.measure(cases)


def _small_row(kind: str, known: str, policy: str, one: Comparison) -> str:
    return (
        f"| {kind} | {known} | {policy} | {one.mean:.3f} | {one.behind} of {one.workloads} | {one.worst:.3f} |"
        f" {one.makespan:.3f} | {one.gpu_hours:.3f} |"
    )


def _public_row(column: Column, policy: str, kept: Sequence[Kept]) -> str:
    return (
        f"| {column.title} | {policy} | {mean(kept, 'mean_jct_s'):.0f} | {mean(kept, 'p99_jct_s') / 3600:.1f} |"
        f" {mean(kept, 'makespan_s'):.0f} | {mean(kept, 'gpu_hours_per_job'):.2f} |"
        f" {mean(kept, 'restarts_per_job'):.2f} | {worst_rho(kept):.2f} | {100 * mean(kept, 'rho_above_1'):.0f} % |"
    )


def _judged(found: Mapping[str, Sequence[Kept]]) -> Figures:
    """Makespan: mean over the workloads of ours over the shortest of the elastic policies'."""
    ours, sia = found["swell"], found["sia"]
    shortest = [min(figure(found[policy][i], "makespan_s") for policy in ELASTIC) for i in range(len(ours))]
    spans = [figure(one, "makespan_s") / least for one, least in zip(ours, shortest, strict=True)]
    return {
        "mean_s": mean(ours, "mean_jct_s"),
        "makespan": sum(spans) / len(spans),
        "p99": mean(ours, "p99_jct_s") / mean(sia, "p99_jct_s"),
        "worst_rho": worst_rho(ours) / worst_rho(sia),
    }


def _coverage_row(kind: str, age: str, one: Verdict) -> str:
    return (
        f"| {kind} | {age} | {one.forecasts} | {100 * one.inside:.0f} % | {100 * one.error:.0f} % | {one.width:.1f} "
        f"| {100 * one.unknown:.0f} % |"
    )


def judgement(figures: Mapping[str, float], bars: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Each bar with what was measured."""
    lines = ["| what | bar | measured | |", "|---|---|---|---|"]
    for name, bar in bars.items():
        least, most = float(str(bar.get("least", "-inf"))), float(str(bar.get("most", "inf")))
        wanted = f"{least:g} to {most:g}" if "least" in bar else f"≤ {most:g}"
        value = figures.get(name)
        verdict = "not measured" if value is None else "holds" if least <= value <= most else "**missed**"
        lines.append(f"| {bar['what']} | {wanted} | {'' if value is None else f'{value:.4g}'} | {verdict} |")
    return lines


def page(measured: Measured, parts: Sequence[str], picture: Path) -> str:
    sections: Mapping[str, tuple[str, Callable[[], list[str]]]] = {
        "small": ("Small clusters", measured.small),
        "pollux": ("Pollux 1 to 4", partial(measured.public, "pollux", COLUMNS)),
        "sia": ("Sia, six workloads", partial(measured.public, "sia", (ADAPTIVE_TOLD, ADAPTIVE_LEARNING))),
        "guard": ("Baselines at their best: Pollux, fixed batch, told", measured.guard),
        "frontier": ("From least mean to most work per GPU hour", partial(measured.frontier, picture)),
        "coverage": ("Forecasts: ends inside intervals meant to hold 80 %", measured.coverage),
    }
    body: list[str] = []
    for name in parts:
        title, lines = sections[name]
        body += [f"## {title}", "", *lines(), ""]
    if picture.exists() and "frontier" in parts:
        body += [f"![mean, makespan and GPU hours by efficiency]({picture.name})", ""]
    bars = json.loads(Path(__file__).with_name("required.json").read_text(encoding="utf-8"))
    when = f"{datetime.now(UTC):%Y-%m-%d} with Python {platform.python_version()} by `make bench-policies`"
    head = ["# What the default policy must show", "", f"Measured {when}; bars: benchmarks/policies/required.json.", ""]
    return "\n".join([*head, *judgement(measured.figures, bars), "", *body]).rstrip() + "\n"


PARTS = ("small", "pollux", "sia", "guard", "frontier", "coverage")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policies.required", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory with pollux/ and sia/")
    parser.add_argument("--results", type=Path, default=Path("out/bench-required"))
    parser.add_argument("--out", type=Path, default=Path("docs/figures/required.md"))
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a sample")
    parser.add_argument("--kept", action="store_true", help="simulate nothing: tables of what there is")
    chosen = parser.parse_args()
    bench = Bench(chosen.data, chosen.results, processes=chosen.processes, kept=chosen.kept)
    measured = Measured(bench, chosen.results, QUICK if chosen.quick else Scope(), kept=chosen.kept)
    chosen.out.write_text(
        page(measured, chosen.parts.split(","), chosen.out.with_name("frontier.svg")), encoding="utf-8"
    )
    print(f"written: {chosen.out}")


if __name__ == "__main__":
    main()
