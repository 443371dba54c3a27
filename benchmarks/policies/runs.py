"""What `make bench-tables` and `make bench-policies` simulate, and how results are kept: each as a small JSON file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.policies.forecast_backtest import EVERY_S, Told, backtest
from swell.core.snapshot import Options
from swell.policy.registry import POLICIES
from swell.sim.simulate import Case, OptionValue, Outcome
from swell.sim.simulate_many import run_cases
from swell.sim.workload import name_of_draw

Kept = Mapping[str, object]
"""Of one simulation: its summary, and what pictures need (`jct_s`, `rho` of each job, `used` over time)."""
SIA_CLUSTER = "6x4xT4,3x8x2080Ti,2x8xA100"
LOADS = (0.5, 1.0, 1.5, 2.0)
AS_PUBLISHED = Options(starvation_s=1e12, max_moves=0)
TWO_QUEUES: Mapping[str, OptionValue] = {"thresholds_gpu_s": "57600", "knob": 1e9, "by_submission": True}
BIN_S = 300.0
"""Utilisation is kept as means over so long."""


@dataclass(frozen=True, slots=True)
class Column:
    """What jobs may do with their batch size, and whether policies are told true speeds and remaining times."""

    title: str
    adaptive: bool
    clairvoyant: bool


FIXED_TOLD = Column("fixed batch, told", adaptive=False, clairvoyant=True)
FIXED_LEARNING = Column("fixed batch, learning", adaptive=False, clairvoyant=False)
ADAPTIVE_TOLD = Column("adaptive batch, told", adaptive=True, clairvoyant=True)
ADAPTIVE_LEARNING = Column("adaptive batch, learning", adaptive=True, clairvoyant=False)
COLUMNS = (FIXED_TOLD, FIXED_LEARNING, ADAPTIVE_TOLD, ADAPTIVE_LEARNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Of what there is to measure: these policies, these columns."""

    policies: Sequence[str] = tuple(POLICIES)
    columns: Sequence[Column] = COLUMNS

    def of(self, policies: Sequence[str]) -> list[str]:
        return [policy for policy in policies if policy in self.policies]


class Bench:
    def __init__(
        self, data: Path, results: Path, *, processes: int = 0, again: Iterable[str] = (), kept: bool = False
    ) -> None:
        """`again`: policies whose results are not to be believed any more; `kept`: simulate nothing."""
        self._data, self._results, self._processes, self._kept = data, results, processes, kept
        self._again = frozenset(again)
        self._fresh: set[str] = set()
        results.mkdir(parents=True, exist_ok=True)

    def measure(self, cases: Mapping[str, Case]) -> list[Kept]:
        """In the order of the cases; what was measured before is read. Empty if something is missing and stays so."""
        if not self._kept:
            self._simulate({name: case for name, case in cases.items() if self._stale(name, case)})
        files = [self._file(name) for name in cases]
        if not all(file.exists() for file in files):
            return []
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def backtest(self, cases: Mapping[str, Case], every_s: float = EVERY_S) -> list[list[Told]]:
        """The forecasts of each case, in the same way."""
        found: list[list[Told]] = []
        for name, case in cases.items():
            file = self._file(f"forecast-{name}")
            if not self._kept and self._stale(f"forecast-{name}", case):
                self._fresh.add(f"forecast-{name}")
                file.write_text(json.dumps([asdict(one) for one in backtest(case, every_s)]), encoding="utf-8")
                print(f"{file.stem}: done", flush=True)
            if file.exists():
                found.append([Told(**one) for one in json.loads(file.read_text(encoding="utf-8"))])
        return found if len(found) == len(cases) else []

    def _simulate(self, missing: Mapping[str, Case]) -> None:
        names = list(missing)
        at_once = self._processes or 4
        for start in range(0, len(names), at_once):
            some = names[start : start + at_once]
            outcomes = run_cases([missing[name] for name in some], self._processes)
            for name, outcome in zip(some, outcomes, strict=True):
                self._keep(name, outcome)

    def _stale(self, name: str, case: Case) -> bool:
        return not self._file(name).exists() or (case.policy in self._again and name not in self._fresh)

    def _keep(self, name: str, outcome: Outcome) -> None:
        self._fresh.add(name)
        self._file(name).write_text(json.dumps(worth_keeping(outcome)), encoding="utf-8")
        print(f"{name}: {outcome.summary['mean_jct_s']} s, {outcome.summary['cpu_s']} CPU s", flush=True)

    def _file(self, name: str) -> Path:
        return self._results / f"{name.replace('/', '_')}.json"

    def pollux(self, policy: str, column: Column, load: float = 1.0, draw: int = 0) -> dict[str, Case]:
        directory = self._data / "pollux"
        return {
            name_of_draw(f"pollux-{path.stem.rpartition('-')[2]}-{policy}-{slug(column)}-{load:g}", draw): Case(
                workload=path,
                profiles=directory / "profiles",
                policy=policy,
                cluster="16x4",
                adaptive=column.adaptive,
                clairvoyant=column.clairvoyant,
                load=load,
                draw=draw,
            )
            for path in sorted((directory / "workloads").glob("*.csv"))
        }

    def published(self, policy: str) -> dict[str, Case]:
        options: Mapping[str, OptionValue] = TWO_QUEUES if policy == "tiresias" else {}
        return {
            f"published-{name}": replace(case, options=AS_PUBLISHED, policy_options=options)
            for name, case in self.pollux(policy, FIXED_TOLD).items()
        }

    def sia(self, policy: str, column: Column, draw: int = 0) -> dict[str, Case]:
        directory = self._data / "sia"
        return {
            name_of_draw(f"sia-{path.parent.name}-{path.stem}-{policy}-{slug(column)}", draw): Case(
                workload=path,
                profiles=directory / "profiles",
                policy=policy,
                cluster=SIA_CLUSTER,
                adaptive=column.adaptive,
                clairvoyant=column.clairvoyant,
                draw=draw,
            )
            for path in self.sia_workloads()
        }

    def sia_workloads(self) -> list[Path]:
        return sorted((self._data / "sia" / "workloads").glob("*/*.csv"))

    def philly(self, policy: str) -> dict[str, Case]:
        path = self._data / "philly" / "philly.csv.xz"
        return {f"philly-{policy}": Case(workload=path, policy=policy, clairvoyant=True)}


def slug(column: Column) -> str:
    """Its title in names of files."""
    return column.title.replace(", ", "-").replace(" ", "-")


def worth_keeping(outcome: Outcome) -> dict[str, object]:
    """A trace of months is only summed up: no picture shows its jobs."""
    if outcome.case.profiles is None:
        return dict(outcome.summary)
    return {
        **outcome.summary,
        "jct_each_s": [round(row.jct_s, 1) for row in outcome.rows],
        "rho_each": [round(row.rho, 3) for row in outcome.rows],
        "used": used(outcome.held, outcome.gpus),
    }


def used(held: Sequence[tuple[float, int, int]], gpus: int) -> list[float]:
    """The part of the GPUs that is held, as means over bins of `BIN_S` from the start."""
    gpu_s: list[float] = []
    holding: dict[int, int] = {}
    now_s, total = 0.0, 0
    for at_s, job, count in sorted(held):
        _spread(gpu_s, now_s, at_s, total)
        total += count - holding.get(job, 0)
        holding[job], now_s = count, at_s
    return [round(area / BIN_S / gpus, 3) for area in gpu_s]


def _spread(gpu_s: list[float], from_s: float, to_s: float, level: int) -> None:
    while from_s < to_s:
        index = int(from_s // BIN_S)
        until_s = min(to_s, (index + 1) * BIN_S)
        gpu_s.extend([0.0] * (index + 1 - len(gpu_s)))
        gpu_s[index] += level * (until_s - from_s)
        from_s = until_s
