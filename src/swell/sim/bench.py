"""`make bench-policies`: every policy on the public workloads, as tables in docs/figures/simulator.md.

Each simulation is kept as a small JSON file, so that a run that was cut short goes on where it was, and a single policy
can be measured again (`--again swell`).
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from swell.core.snapshot import Options
from swell.policy.registry import POLICIES
from swell.sim.case import Case, OptionValue, Outcome
from swell.sim.runs import run_cases

Figures = Mapping[str, float]
SIA_CLUSTER = "6x4xaws,3x8xrtx,2x8xdgx-ext"
LOADS = (0.5, 1.5, 2.0)
FOR_SIA = ("swell", "sia", "max-min", "afs-l", "elastic-fifo", "srjf")
FOR_LOADS = ("swell", "afs-l", "srjf", "elastic-srjf", "tiresias", "elastic-fifo")
PUBLISHED_TIRESIAS = (2474, 5145, 3876, 3280)
PUBLISHED_OPTIMUS = (4087, 6914, 3944, 5968)
PUBLISHED_POLLUX = (2089, 3323, 2188, 2721)
AS_PUBLISHED = Options(starvation_s=1e12, max_moves=0)
TWO_QUEUES: Mapping[str, OptionValue] = {"thresholds_gpu_s": "57600", "knob": 1e9, "by_submission": True}


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    adaptive: bool
    clairvoyant: bool


COLUMNS = (
    Column("fixed batch, told", adaptive=False, clairvoyant=True),
    Column("fixed batch, learning", adaptive=False, clairvoyant=False),
    Column("adaptive batch, told", adaptive=True, clairvoyant=True),
    Column("adaptive batch, learning", adaptive=True, clairvoyant=False),
)


class Bench:
    def __init__(self, data: Path, results: Path, processes: int, again: Iterable[str]) -> None:
        self._data, self._results, self._processes = data, results, processes
        self._again = frozenset(again)
        self._fresh: set[str] = set()
        results.mkdir(parents=True, exist_ok=True)

    def measure(self, cases: Mapping[str, Case]) -> dict[str, Figures]:
        """Figures by the name of the case; what was measured before is read."""
        missing = {name: case for name, case in cases.items() if self._stale(name, case)}
        names = list(missing)
        at_once = self._processes or 4
        for start in range(0, len(names), at_once):
            some = names[start : start + at_once]
            outcomes = run_cases([missing[name] for name in some], self._processes)
            for name, outcome in zip(some, outcomes, strict=True):
                self._keep(name, outcome)
        return {name: json.loads(self._file(name).read_text(encoding="utf-8")) for name in cases}

    def _stale(self, name: str, case: Case) -> bool:
        return not self._file(name).exists() or (case.policy in self._again and name not in self._fresh)

    def _keep(self, name: str, outcome: Outcome) -> None:
        self._fresh.add(name)
        self._file(name).write_text(json.dumps(dict(outcome.summary)), encoding="utf-8")
        print(f"{name}: {outcome.summary['mean_jct_s']} s, {outcome.summary['wall_s']} CPU s", flush=True)

    def _file(self, name: str) -> Path:
        return self._results / f"{name.replace('/', '_')}.json"

    def pollux(self, policy: str, column: Column, load: float = 1.0) -> dict[str, Case]:
        directory = self._data / "pollux"
        return {
            f"pollux-{number}-{policy}-{column.title.replace(', ', '-').replace(' ', '-')}-{load:g}": Case(
                workload=path,
                profiles=directory / "profiles",
                policy=policy,
                cluster="16x4",
                adaptive=column.adaptive,
                clairvoyant=column.clairvoyant,
                load=load,
            )
            for number, path in enumerate(sorted((directory / "workloads").glob("*.csv")), start=1)
        }

    def published(self, policy: str) -> dict[str, Case]:
        told = Column("fixed batch, told", adaptive=False, clairvoyant=True)
        options: Mapping[str, OptionValue] = TWO_QUEUES if policy == "tiresias" else {}
        return {
            f"published-{name}": Case(
                workload=case.workload,
                profiles=case.profiles,
                policy=policy,
                cluster="16x4",
                clairvoyant=True,
                options=AS_PUBLISHED,
                policy_options=options,
            )
            for name, case in self.pollux(policy, told).items()
        }

    def sia(self, policy: str, clairvoyant: bool) -> dict[str, Case]:
        directory = self._data / "sia"
        return {
            f"sia-{path.parent.name}-{path.stem}-{policy}-{'told' if clairvoyant else 'learning'}": Case(
                workload=path,
                profiles=directory / "profiles",
                policy=policy,
                cluster=SIA_CLUSTER,
                adaptive=True,
                clairvoyant=clairvoyant,
            )
            for path in sorted((directory / "workloads").glob("*/*.csv"))
        }

    def philly(self, policy: str) -> dict[str, Case]:
        path = self._data / "philly" / "philly.csv.xz"
        return {f"philly-{policy}": Case(workload=path, policy=policy, clairvoyant=True)}


def mean(figures: Iterable[Figures], key: str) -> float:
    values = [float(one[key]) for one in figures]
    return sum(values) / len(values)


def faithful(bench: Bench) -> list[str]:
    lines = ["| policy | | 1 | 2 | 3 | 4 |", "|---|---|---|---|---|---|"]
    for policy, published in (("tiresias", PUBLISHED_TIRESIAS), ("optimus", PUBLISHED_OPTIMUS)):
        ours = [one["mean_jct_s"] for one in bench.measure(bench.published(policy)).values()]
        lines.append(f"| {policy} | published | " + " | ".join(f"{p}" for p in published) + " |")
        lines.append("| | ours | " + " | ".join(f"{o:.0f}" for o in ours) + " |")
        off = (f"{100 * (o / p - 1):+.1f} %" for o, p in zip(ours, published, strict=True))
        lines.append("| | difference | " + " | ".join(off) + " |")
    return lines


def best(bench: Bench, policies: Sequence[str], columns: Sequence[Column] = COLUMNS) -> list[str]:
    lines: list[str] = []
    for column in columns:
        found = {policy: bench.measure(bench.pollux(policy, column)) for policy in policies}
        lines += ["", f"**{column.title}**", "", *_policy_table(found)]
    return lines


def _policy_table(found: Mapping[str, Mapping[str, Figures]]) -> list[str]:
    lines = [
        "| policy | mean JCT s | each workload | p99 h | restarts/job | GPU h/job | worst ρ | ρ > 1 | CPU s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for policy in sorted(found, key=lambda policy: mean(found[policy].values(), "mean_jct_s")):
        some = list(found[policy].values())
        each = " ".join(f"{one['mean_jct_s']:.0f}" for one in some)
        p99_h = mean(some, "p99_jct_s") / 3600
        lines.append(
            f"| {policy} | **{mean(some, 'mean_jct_s'):.0f}** | {each} | {p99_h:.1f} |"
            f" {mean(some, 'restarts_per_job'):.2f} | {mean(some, 'gpu_hours_per_job'):.2f} |"
            f" {max(one['worst_rho'] for one in some):.2f} | {100 * mean(some, 'rho_above_1'):.0f} % |"
            f" {mean(some, 'wall_s'):.1f} |"
        )
    return lines


def loads(bench: Bench, policies: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for column in (COLUMNS[0], COLUMNS[3]):
        lines += ["", f"**{column.title}**: mean JCT in s over the four workloads", ""]
        lines += ["| policy | " + " | ".join(f"{load:g}×" for load in LOADS) + " |", "|---" * (len(LOADS) + 1) + "|"]
        for policy in policies:
            cells = [mean(bench.measure(bench.pollux(policy, column, load)).values(), "mean_jct_s") for load in LOADS]
            lines.append(f"| {policy} | " + " | ".join(f"{cell:.0f}" for cell in cells) + " |")
    return lines


def heterogeneous(bench: Bench, policies: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for clairvoyant in (True, False):
        found = {policy: bench.measure(bench.sia(policy, clairvoyant)) for policy in policies}
        lines += ["", f"**{'told' if clairvoyant else 'learning'}**", "", *_policy_table(found)]
    return lines


def fast(bench: Bench, policies: Sequence[str]) -> list[str]:
    lines = ["| policy | jobs | mean JCT s | events | passes | CPU s | events/s |", "|---|---|---|---|---|---|---|"]
    for policy in policies:
        for one in bench.measure(bench.philly(policy)).values():
            lines.append(
                f"| {policy} | {one['jobs']} | {one['mean_jct_s']:.0f} | {one['events']} | {one['passes']} |"
                f" {one['wall_s']:.0f} | {one['events'] / one['wall_s']:.0f} |"
            )
    return lines


def page(bench: Bench, parts: Sequence[str], policies: Sequence[str], columns: Sequence[Column]) -> str:
    some = [policy for policy in FOR_LOADS if policy in policies]
    mixed = [policy for policy in FOR_SIA if policy in policies]
    sections: dict[str, tuple[str, Callable[[], list[str]]]] = {
        "faithful": ("Faithful: mean JCT (s) as published and as simulated here", lambda: faithful(bench)),
        "best": ("Every policy on the four Pollux workloads", lambda: best(bench, policies, columns)),
        "loads": ("Other loads", lambda: loads(bench, some)),
        "sia": ("Heterogeneous: the shared Sia workloads, adaptive batch sizes", lambda: heterogeneous(bench, mixed)),
        "philly": (
            "Fast: the Philly trace, every virtual cluster",
            lambda: fast(bench, [p for p in ("fifo", "swell") if p in policies]),
        ),
    }
    said = f"Measured {datetime.now(UTC):%Y-%m-%d} with Python {platform.python_version()} by `make bench-policies`."
    lines = ["<!-- written by `make bench-policies`; the text around it is in docs/figures/simulator.md -->", said, ""]
    for name, (title, make) in sections.items():
        if name in parts:
            lines += [f"## {title}", "", *make(), ""]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m swell.sim.bench", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory with pollux/, sia/ and philly/")
    parser.add_argument("--results", type=Path, default=Path("out/bench-policies"))
    parser.add_argument("--out", type=Path, default=Path("docs/figures/simulator-tables.md"))
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--parts", default="faithful,best,loads,sia,philly")
    parser.add_argument("--policies", default=",".join(POLICIES), help="only these")
    parser.add_argument("--columns", default="", help="only those with this word in their title: told, learning, …")
    parser.add_argument("--again", default="", help="policies to measure again")
    said = parser.parse_args()
    bench = Bench(said.data, said.results, said.processes, filter(None, said.again.split(",")))
    columns = [column for column in COLUMNS if said.columns in column.title]
    text = page(bench, said.parts.split(","), said.policies.split(","), columns)
    said.out.write_text(text, encoding="utf-8")
    print(f"written: {said.out}")


if __name__ == "__main__":
    main()
