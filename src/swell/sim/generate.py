"""Workloads from a seed, by the distributions that were published of production clusters.

Arrivals are Poisson with the day's rhythm (Philly, ATC'19: rate swings by about 60 % around its mean between night and
afternoon). GPUs asked for: most jobs one, few many (Philly: 1 for 70 % …). Durations are log-normal with a long tail
(median 13 min, mean some hours, as in Helios, SC'21: σ of the logarithm about 2); families follow a Zipf law: few are
submitted again and again. What a family says of a job's length, what users estimate and how many jobs report nothing
can be chosen: by default families say nothing, users estimate nothing and every job reports its epochs.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from swell.core.errors import SwellError
from swell.core.job import GpuRequest, JobSpec, Launcher, Preemptible
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
    gpus: int = 64  # GPUs of the cluster: no job asks for more
    families: int = 20
    elastic: float = 0.7  # part of the jobs that may have from one to four times the GPUs asked for
    median_s: float = MEDIAN_S
    sigma: float = SIGMA
    alike: float = 0.0  # part of the variance of log durations that lies between families, not within them
    reversed: bool = False  # from the middle of the jobs on, families that were long are short and the other way round
    estimate_off: float = 0.0  # users' estimates are off by this factor, typically; 0: they give none
    silent: float = 0.0  # part of the jobs that report nothing before they end
    unstoppable: float = 0.0  # part of the silent ones that cannot be stopped: one-off scripts without checkpoints
    seed: int = 0


def generate(recipe: Recipe) -> Workload:
    if recipe.jobs < 1 or recipe.hours <= 0 or recipe.gpus < 1:
        raise SwellError("a workload has at least one job, some hours and one GPU")
    if not all(0 <= part <= 1 for part in (recipe.alike, recipe.silent, recipe.unstoppable)):
        raise SwellError("alike, silent and unstoppable are parts of a whole: from 0 to 1")
    if recipe.estimate_off and recipe.estimate_off < 1:
        raise SwellError("estimates are off by a factor of 1 or more; 0: users give none")
    rng = random.Random(recipe.seed)  # noqa: S311 - a workload, not a secret
    times = sorted(_time_s(rng, recipe.hours * 3600) for _ in range(recipe.jobs))
    arrivals = tuple(_arrival(rng, recipe, i, at_s) for i, at_s in enumerate(times))
    return Workload(name=f"generated-{recipe.seed}", arrivals=arrivals)


class _Aside:
    """A generator of its own for optional properties, so that recipes without them give the same workload as before."""

    def __init__(self, recipe: Recipe, index: int) -> None:
        self._recipe, self._index = recipe, index

    def _rng(self, what: str, of: int) -> random.Random:
        return random.Random(f"{self._recipe.seed}/{what}/{of}")  # noqa: S311 - a workload, not a secret

    def deviation(self, family: int, own: float) -> float:
        """Of the log duration, in standard deviations: part the family's, part the job's own."""
        alike = self._recipe.alike
        if not alike:
            return own
        of_family = self._rng("family", family).gauss(0.0, 1.0)
        if self._recipe.reversed and self._index >= self._recipe.jobs // 2:
            of_family = -of_family
        return math.sqrt(alike) * of_family + math.sqrt(1.0 - alike) * own

    def estimated_s(self, duration_s: float) -> float:
        off = self._recipe.estimate_off
        return duration_s * math.exp(math.log(off) * self._rng("estimate", self._index).gauss(0.0, 1.0)) if off else 0.0

    def is_silent(self) -> bool:
        return self._rng("silent", self._index).random() < self._recipe.silent

    def may_be_stopped(self) -> bool:
        """Of a silent job."""
        return self._rng("unstoppable", self._index).random() >= self._recipe.unstoppable


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
    aside = _Aside(recipe, index)
    deviation = aside.deviation(family, rng.gauss(0.0, 1.0))
    duration_s = max(30.0, min(MAX_S, recipe.median_s * math.exp(recipe.sigma * deviation)))
    silent = aside.is_silent()
    stoppable = not silent or aside.may_be_stopped()
    spec = JobSpec(
        name=f"family{family}-{index}",
        command=("python", f"train{family}.py"),
        family=f"family{family}",
        gpus=GpuRequest(min=1 if most > gpus else gpus, max=most, start=gpus),
        launcher=Launcher.PER_GPU,
        epochs=0 if silent else FAMILY_EPOCHS[family % len(FAMILY_EPOCHS)],
        estimated_s=aside.estimated_s(duration_s),
        uses_library=stoppable,
        preemptible=Preemptible.AUTO if stoppable else Preemptible.NEVER,
    )
    return Arrival(at_s=at_s, spec=spec, truth={"duration_s": duration_s, **({"silent": 1.0} if silent else {})})


def _zipf(rng: random.Random, count: int) -> int:
    weights = [1 / (rank + 1) for rank in range(count)]
    return rng.choices(range(count), weights)[0]
