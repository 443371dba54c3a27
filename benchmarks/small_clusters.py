"""Policies on small clusters with jobs of unknown, heavy-tailed lengths: thirty generated workloads from seeds.

    python -m benchmarks.small_clusters --kind plain --first 1001          # 8 GPUs, 60 jobs, 4 h, all elastic
    python -m benchmarks.small_clusters --kind varied --first 1001         # 4 to 16 GPUs, 20 to 100 jobs, …

Each simulation is kept as a line of JSON under `--results`, so that a run that was cut short goes on where it was and
policies can be added; `--again swell` measures a policy again. Seeds 1001 to 1030 were looked at while the policy was
made; 2001 to 2030 are for judging it.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from swell.core.snapshot import Options
from swell.sim.generate import Recipe, generate
from swell.sim.simulate import Case, OptionValue, simulate
from swell.sim.swell_workloads import write_jobs

OTHERS = ("afs-l", "elastic-srjf", "srjf", "tiresias", "elastic-tiresias", "optimus", "elastic-fifo", "sia")
UNGUARDED = Options(starvation_s=1e12)
KEPT = ("mean_jct_s", "makespan_s", "gpu_hours_per_job", "restarts_per_job", "worst_rho", "p99_jct_s")
Figures = Mapping[str, float]


def plain(seed: int) -> Recipe:
    return Recipe(jobs=60, hours=4, gpus=8, elastic=1.0, seed=seed)


def varied(seed: int) -> Recipe:
    """Small clusters of any kind: families that mean something, nothing or the wrong thing, estimates off by three,
    jobs that report nothing."""
    rng = random.Random(f"small/{seed}")
    families = rng.choice(["something", "nothing", "wrong"])
    return Recipe(
        jobs=rng.randint(20, 100),
        hours=rng.choice([2.0, 4.0, 8.0, 24.0]),
        gpus=rng.choice([4, 8, 16]),
        families=rng.choice([5, 10, 20]),
        elastic=rng.choice([0.5, 1.0]),
        median_s=rng.choice([300.0, 780.0, 2400.0]),
        sigma=rng.choice([1.5, 2.0]),
        alike=0.0 if families == "nothing" else 0.8,
        reversed=families == "wrong",
        estimate_off=rng.choice([0.0, 3.0]),
        silent=rng.choice([0.0, 0.5, 1.0]),
        seed=seed,
    )


KINDS = {"plain": plain, "varied": varied}


def cluster_of(gpus: int) -> str:
    return f"1x{gpus}" if gpus <= 8 else f"{gpus // 8}x8"


class Results:
    """One file of lines, each the figures of one simulation by its key."""

    def __init__(self, directory: Path, again: Sequence[str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._file = directory, directory / "results.jsonl"
        lines = self._file.read_text(encoding="utf-8").splitlines() if self._file.exists() else []
        kept = (json.loads(line) for line in lines)
        self._kept = {one["key"]: one for one in kept if one["policy"] not in again}

    def has(self, kind: str, seeds: Iterable[int], told: bool, others: Sequence[str]) -> bool:
        """Was `swell`, and were these others with and without the guard, measured on all of these?"""
        wanted = (("swell", True), *((policy, guard) for policy in others for guard in (True, False)))
        return all(
            _key(kind, seed, policy, told, guard, {}) in self._kept for seed in seeds for policy, guard in wanted
        )

    def of(
        self, kind: str, seed: int, policy: str, told: bool, guard: bool, said: Mapping[str, OptionValue]
    ) -> Figures:
        key = _key(kind, seed, policy, told, guard, said)
        if key not in self._kept:
            recipe = KINDS[kind](seed)
            path = self._directory / f"{kind}-{seed}.yaml"
            if not path.exists():
                write_jobs(generate(recipe), path)
            case = Case(
                workload=path,
                policy=policy,
                cluster=cluster_of(recipe.gpus),
                clairvoyant=told,
                options=Options() if guard else UNGUARDED,
                policy_options=dict(said) if policy == "swell" else {},
            )
            summary = simulate(case).summary
            figures = {name: summary[name] for name in KEPT}
            self._kept[key] = {"key": key, "policy": policy, **figures}
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self._kept[key]) + "\n")
        return {name: float(self._kept[key][name]) for name in KEPT}


def _key(kind: str, seed: int, policy: str, told: bool, guard: bool, said: Mapping[str, OptionValue]) -> str:
    options = ",".join(f"{name}={value}" for name, value in sorted(said.items())) if policy == "swell" else ""
    return f"{kind}/{seed}/{policy}/{told}/{guard}/{options}"


def better(results: Results, kind: str, seed: int, policy: str, told: bool) -> Figures:
    """A baseline at its best: with or without the starvation guard, whichever has the lower mean."""
    both = [results.of(kind, seed, policy, told, guard, {}) for guard in (True, False)]
    return min(both, key=_mean_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Ours over theirs: means of ratios over some workloads."""

    workloads: int
    mean: float
    behind: int  # on so many of the workloads
    worst: float
    makespan: float
    gpu_hours: float


def compare(ours: Mapping[int, Figures], theirs: Mapping[int, Figures]) -> Comparison:
    """By seed; both have the same."""

    def ratios(name: str) -> list[float]:
        return [ours[seed][name] / theirs[seed][name] for seed in ours]

    means = ratios("mean_jct_s")
    return Comparison(
        workloads=len(means),
        mean=fmean(means),
        behind=sum(ratio > 1 for ratio in means),
        worst=max(means),
        makespan=fmean(ratios("makespan_s")),
        gpu_hours=fmean(ratios("gpu_hours_per_job")),
    )


def best_of(others: Mapping[str, Mapping[int, Figures]]) -> dict[int, Figures]:
    """On each workload the policy with the lowest mean there."""
    seeds = next(iter(others.values()))
    return {seed: min((theirs[seed] for theirs in others.values()), key=_mean_s) for seed in seeds}


def _mean_s(figures: Figures) -> float:
    return figures["mean_jct_s"]


def table(ours: Mapping[int, Figures], others: Mapping[str, Mapping[int, Figures]], title: str) -> None:
    print(f"\n{title}: ours over theirs, mean of ratios over {len(ours)} workloads")
    print(f"{'policy':18} {'mean':>6} {'behind':>6} {'worst':>6} {'makespan':>8} {'GPU h':>6}")
    best = best_of(others)
    for policy, theirs in {**others, "best of them each": best}.items():
        one = compare(ours, theirs)
        print(f"{policy:18} {one.mean:6.3f} {one.behind:6} {one.worst:6.3f} {one.makespan:8.3f} {one.gpu_hours:6.3f}")
    restarts = fmean(one["restarts_per_job"] for one in ours.values())
    print(f"swell: restarts {restarts:.2f}, worst rho {max(one['worst_rho'] for one in ours.values()):.2f}")
    ratios = {seed: _mean_s(ours[seed]) / _mean_s(best[seed]) for seed in ours}
    print("behind on:", {seed: round(ratio, 3) for seed, ratio in ratios.items() if ratio > 1})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_clusters", description=__doc__)
    parser.add_argument("--kind", choices=list(KINDS), default="plain")
    parser.add_argument("--first", type=int, default=1001, help="first seed")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--others", default=",".join(OTHERS))
    parser.add_argument("--known", default="told,learning")
    parser.add_argument("--set", action="append", default=[], help="NAME=VALUE of the swell policy")
    parser.add_argument("--again", default="", help="policies to measure again")
    parser.add_argument("--results", type=Path, default=Path("out/small-clusters"))
    chosen = parser.parse_args()
    results = Results(chosen.results, chosen.again.split(","))
    options: dict[str, OptionValue] = {name: float(value) for name, _, value in (o.partition("=") for o in chosen.set)}
    seeds = range(chosen.first, chosen.first + chosen.count)
    for known in chosen.known.split(","):
        told = known == "told"
        ours = {seed: results.of(chosen.kind, seed, "swell", told, True, options) for seed in seeds}
        others = {
            policy: {seed: better(results, chosen.kind, seed, policy, told) for seed in seeds}
            for policy in chosen.others.split(",")
            if policy
        }
        table(ours, others, f"{chosen.kind}, {known}")


if __name__ == "__main__":
    main()
