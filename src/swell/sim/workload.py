"""What arrives when: a list of job specs with their times. Readers of public formats and the generator make these."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from swell.core.errors import SwellError
from swell.core.job import JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A job and when it comes. `truth` is what only the world knows of it: its true duration, say."""

    at_s: float
    spec: JobSpec
    truth: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    name: str
    arrivals: tuple[Arrival, ...]  # in order of time

    def sorted(self) -> Workload:
        return replace(self, arrivals=tuple(sorted(self.arrivals, key=lambda a: a.at_s)))


def at_load(workload: Workload, load: float) -> Workload:
    """The same arrivals thinned (0.5: every second job) or repeated (2: each twice), evenly, in the same time.

    Job i is kept floor((i + 1) × load) − floor(i × load) times, so that no randomness is needed; repeats come half way
    to the next arrival, so that they do not come in pairs."""
    if load <= 0:
        raise SwellError(f"a load of {load:g} leaves no jobs; 1 is the workload as it is, 0.5 half of it")
    if load == 1:
        return workload
    kept: list[Arrival] = []
    for i, arrival in enumerate(workload.arrivals):
        times = int((i + 1) * load + 1e-9) - int(i * load + 1e-9)
        following = workload.arrivals[i + 1].at_s if i + 1 < len(workload.arrivals) else arrival.at_s
        kept.extend(_copy(arrival, k, times, following) for k in range(times))
    return replace(workload, arrivals=tuple(kept))


def drawn(workload: Workload, seed: int) -> Workload:
    """Another workload of the same kind: as many jobs, each any one of these, at times as frequent as these. What
    holds on many of them holds of the policy, not of one list of jobs. 0: the workload as it is.

    Times lie anywhere between one of the arrivals and the next. Jobs wait for no others: those may not be drawn."""
    if not seed or not workload.arrivals:
        return workload
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    times = [arrival.at_s for arrival in workload.arrivals]
    gaps = list(zip(times, [*times[1:], times[-1]], strict=True))
    at_s = sorted(rng.uniform(*rng.choice(gaps)) for _ in times)
    return replace(workload, arrivals=tuple(_redraw(rng.choice(workload.arrivals), i, t) for i, t in enumerate(at_s)))


def name_of_draw(name: str, seed: int) -> str:
    """What results of a drawn workload are called, so that they are kept apart from the others."""
    return f"{name}-draw{seed}" if seed else name


def _redraw(arrival: Arrival, number: int, at_s: float) -> Arrival:
    spec = replace(arrival.spec, name=f"{arrival.spec.name}-{number}", depends_on=(), after_any=(), after_failure=())
    return replace(arrival, at_s=at_s, spec=spec)


def _copy(arrival: Arrival, k: int, times: int, following_s: float) -> Arrival:
    if k == 0:
        return arrival
    at_s = arrival.at_s + (following_s - arrival.at_s) * k / times
    return replace(arrival, at_s=at_s, spec=replace(arrival.spec, name=f"{arrival.spec.name}-again{k}"))
