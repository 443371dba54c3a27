"""Workloads from a seed, by the distributions that were published of production clusters.

Arrivals are Poisson with the day's rhythm (Philly, ATC'19: rate swings by about 60 % around its mean between night and
afternoon). GPUs asked for: most jobs one, few many (Philly: 1 for 70 % …). Durations are log-normal with a long tail
(median 13 min, mean some hours, as in Helios, SC'21: σ of the logarithm about 2); families follow a Zipf law: few are
submitted again and again.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from swell.core.errors import SwellError
from swell.core.job import GpuRequest, JobSpec, Launcher
from swell.sim.workload import Arrival, Workload

SIZES = ((1, 0.70), (2, 0.09), (4, 0.09), (8, 0.08), (16, 0.03), (32, 0.01))
"""(GPUs asked for, part of the jobs)."""
DAY_S = 86400.0
RHYTHM = 0.6
MEDIAN_S = 13 * 60.0
SIGMA = 2.0
MAX_S = 14 * DAY_S
FAMILY_EPOCHS = (10, 30, 90)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    jobs: int = 160
    hours: float = 8.0
    gpus: int = 64  # of the cluster: nobody asks for more
    families: int = 20
    elastic: float = 0.7  # part of the jobs that may have from one to four times the GPUs asked for
    median_s: float = MEDIAN_S
    sigma: float = SIGMA
    seed: int = 0


def generate(recipe: Recipe) -> Workload:
    if recipe.jobs < 1 or recipe.hours <= 0 or recipe.gpus < 1:
        raise SwellError("a workload has at least one job, some hours and one GPU")
    rng = random.Random(recipe.seed)  # noqa: S311 - a workload, not a secret
    times = sorted(_time_s(rng, recipe.hours * 3600) for _ in range(recipe.jobs))
    arrivals = tuple(_arrival(rng, recipe, i, at_s) for i, at_s in enumerate(times))
    return Workload(name=f"generated-{recipe.seed}", arrivals=arrivals)


def _time_s(rng: random.Random, span_s: float) -> float:
    """By rejection: more often in the afternoon (hour 15) than at night. Time 0 is nine in the morning."""
    while True:
        at_s = rng.random() * span_s
        hour = (at_s / 3600 + 9) % 24
        if rng.random() * (1 + RHYTHM) <= 1 + RHYTHM * math.cos((hour - 15) / 24 * 2 * math.pi):
            return at_s


def _arrival(rng: random.Random, recipe: Recipe, index: int, at_s: float) -> Arrival:
    family = _zipf(rng, recipe.families)
    gpus = min(recipe.gpus, rng.choices([n for n, _ in SIZES], [p for _, p in SIZES])[0])
    most = min(recipe.gpus, 4 * gpus) if rng.random() < recipe.elastic else gpus
    duration_s = min(MAX_S, recipe.median_s * math.exp(recipe.sigma * rng.gauss(0.0, 1.0)))
    spec = JobSpec(
        name=f"family{family}-{index}",
        command=("python", f"train{family}.py"),
        family=f"family{family}",
        gpus=GpuRequest(min=1 if most > gpus else gpus, max=most, start=gpus),
        launcher=Launcher.PER_GPU,
        epochs=FAMILY_EPOCHS[family % len(FAMILY_EPOCHS)],
        uses_library=True,
    )
    return Arrival(at_s=at_s, spec=spec, truth={"duration_s": max(30.0, duration_s)})


def _zipf(rng: random.Random, count: int) -> int:
    weights = [1 / (rank + 1) for rank in range(count)]
    return rng.choices(range(count), weights)[0]
