"""Workloads on which forecasts are judged: what people run of whom little is known, and the public ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.policies.forecast_backtest import Told, Verdict, verdict
from benchmarks.policies.runs import FIXED_LEARNING, Bench
from benchmarks.small_clusters import cluster_of, plain
from swell.sim.generate import Recipe, generate
from swell.sim.simulate import Case
from swell.sim.swell_workloads import write_jobs

SHORT = Recipe(jobs=30, hours=4, gpus=8, elastic=1.0, median_s=300.0, sigma=1.5)
RECIPES: Mapping[str, Recipe] = {
    "silent": replace(SHORT, silent=1.0),
    "pinned": replace(SHORT, silent=1.0, unstoppable=1.0),
    "mixed": replace(SHORT, silent=0.5, unstoppable=1.0),
    "half": replace(SHORT, silent=0.5, alike=0.8, estimate_off=3.0),
    "epochs": SHORT,
    "sweep": replace(SHORT, families=1, alike=1.0, median_s=600.0, sigma=0.4),
}
SEEDS = tuple(range(3201, 3211))
"""Nothing was chosen by these: 3101 to 3104 were looked at."""
EVERY_S = 300.0
GENERATED_EVERY_S = 1800.0


def cases(bench: Bench, directory: Path, most: int) -> dict[str, tuple[dict[str, Case], float]]:
    """By kind: the simulations, at most so many, and how often each is forecast."""
    seeds = SEEDS[:most]
    found = {
        kind: ({f"{kind}-{seed}": _case(replace(recipe, seed=seed), kind, directory) for seed in seeds}, EVERY_S)
        for kind, recipe in RECIPES.items()
    }
    generated = {f"generated-{seed}": _case(plain(seed), "generated", directory) for seed in seeds}
    pollux = dict(list(bench.pollux("swell", FIXED_LEARNING).items())[:most])
    return found | {"generated": (generated, GENERATED_EVERY_S), "pollux": (pollux, 900.0)}


def _case(recipe: Recipe, kind: str, directory: Path) -> Case:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{kind}-{recipe.seed}.yaml"
    if not path.exists():
        write_jobs(generate(recipe), path)
    return Case(workload=path, policy="swell", cluster=cluster_of(recipe.gpus))


def by_age(told: Sequence[Told]) -> dict[str, Verdict]:
    """All of them; those of jobs that wait; those of jobs that started so long ago."""
    groups = {
        "all": list(told),
        "waits": [one for one in told if one.waiting],
        "runs, < 5 min": [one for one in told if not one.waiting and one.age_s < 300],
        "runs, < 1 h": [one for one in told if not one.waiting and 300 <= one.age_s < 3600],
        "runs, longer": [one for one in told if not one.waiting and one.age_s >= 3600],
    }
    return {name: verdict(some) for name, some in groups.items() if some}
