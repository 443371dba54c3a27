"""Where GPU hours go that shorten no job, and which means and makespans a planner who knows the future could have.

    python -m benchmarks.attainable --data DIR --workload 1 [--adaptive]

For Pollux's workloads, told true speeds. First: GPU hours held less those that the same progress takes at the job's
most efficient size, before and after the last submission, of the five jobs that end last and of the others. Then a
linear program: jobs end in the order in which they do under `swell`, arrivals are known, sizes may be mixed, restarts
cost nothing; the least sum of completion times + κ · makespan. Needs scipy.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

from swell.core.snapshot import Curve
from swell.policy._envelope import envelope, useful_sizes
from swell.sim.clairvoyant import Table
from swell.sim.profiles import applications
from swell.sim.simulate import Case, Outcome, scenes, simulate

PER_NODE, GPUS, HOUR_S = 4, 64, 3600.0
LAST = 5
KAPPAS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)


@dataclass(frozen=True, slots=True)
class Job:
    at_s: float
    curve: Curve  # over all of its training
    work_s: float  # on one GPU


@dataclass(frozen=True, slots=True)
class Column:
    """Job `job` on `size` GPUs in the time between event `interval` and the one before."""

    interval: int
    job: int
    size: int
    speed: float


def jobs_of(case: Case) -> list[Job]:
    (scene,) = scenes(case)
    (gpu_type,) = {gpu.type for node in scene.nodes for gpu in node.gpus}
    assert case.profiles is not None  # Pollux's
    apps, tables = applications(case.profiles), dict[tuple[str, int, int], Table]()
    found = []
    for arrival in scene.workload.arrivals:
        spec = arrival.spec
        key = (spec.env["application"], 0 if spec.adaptive_batch else spec.batch_size, spec.gpus.max)
        table = tables.setdefault(key, Table(apps[key[0]], *key[1:], {gpu_type: PER_NODE}))
        whole, sizes = table.speed(0, frozenset({gpu_type})), range(1, key[2] + 1)
        curve = np.maximum.accumulate([whole.rate(n, -(-n // PER_NODE), gpu_type) for n in sizes])
        found.append(Job(arrival.at_s, (0.0, *curve.tolist()), table.reference_s(0)))
    return found


def wasted_h(outcome: Outcome, jobs: Sequence[Job]) -> Mapping[str, float]:
    """GPU hours by when and whose."""
    ids = [row.job for row in outcome.rows]  # in order of submission
    last_jobs = {row.job for row in sorted(outcome.rows, key=lambda row: row.ended_s)[-LAST:]}
    last_s = max(job.at_s for job in jobs)
    wasted = {f"{when}: {whose}": 0.0 for when in ("before", "after") for whose in ("others", "last")}
    for number, job in zip(ids, jobs, strict=True):
        best = max(speed / n for n, speed in enumerate(job.curve) if n)
        held = [(at_s, gpus) for at_s, of, gpus in outcome.held if of == number]
        for (from_s, gpus), (to_s, _) in pairwise(held):
            waste = gpus - job.curve[min(gpus, len(job.curve) - 1)] / best
            whose = "last" if number in last_jobs else "others"
            wasted[f"before: {whose}"] += waste * max(0.0, min(to_s, last_s) - from_s) / HOUR_S
            wasted[f"after: {whose}"] += waste * max(0.0, to_s - max(from_s, last_s)) / HOUR_S
    return wasted


class Plan:
    """The program: variables are the lengths of intervals between events, in hours, then hours at sizes."""

    def __init__(self, jobs: Sequence[Job], ends_s: Sequence[float]) -> None:
        self._jobs = jobs
        arrivals = [(job.at_s, 0, i) for i, job in enumerate(jobs)]
        self._events = sorted([*arrivals, *((end_s, 1, i) for i, end_s in enumerate(ends_s))])
        self._columns: list[Column] = []
        alive: set[int] = set()
        chains = [envelope(job.curve, tuple(useful_sizes(tuple(range(1, len(job.curve))), PER_NODE))) for job in jobs]
        for interval, (_, is_end, job) in enumerate(self._events):
            self._columns += [Column(interval, j, n, speed) for j in sorted(alive) for n, speed in chains[j]]
            (alive.discard if is_end else alive.add)(job)
        self._rows = self._inequalities()
        self._fixed = self._arrivals()

    def _inequalities(self) -> tuple[Any, list[float]]:
        """No more GPUs than there are, no job in two sizes at once, and its work is done."""
        first, entries, limits = len(self._events), list[tuple[int, int, float]](), list[float]()
        rows: dict[tuple[int, int], int] = {}

        def row(interval: int, job: int, factor: float) -> int:
            if (interval, job) not in rows:
                rows[interval, job] = len(limits)
                entries.append((len(limits), interval, -factor))
                limits.append(0.0)
            return rows[interval, job]

        for at, one in enumerate(self._columns, start=first):
            entries.append((row(one.interval, -1, GPUS), at, one.size))
            entries.append((row(one.interval, one.job, 1.0), at, 1.0))
        entries += [(len(limits) + one.job, at, -one.speed) for at, one in enumerate(self._columns, start=first)]
        limits += [-job.work_s / HOUR_S for job in self._jobs]
        down, across, values = zip(*entries, strict=True)
        return csr_matrix((values, (down, across)), shape=(len(limits), first + len(self._columns))), limits

    def _arrivals(self) -> tuple[Any, list[float]]:
        times = [(at, at_s / HOUR_S) for at, (at_s, is_end, _) in enumerate(self._events) if not is_end]
        entries = [(row, before) for row, (at, _) in enumerate(times) for before in range(at + 1)]
        down, across = zip(*entries, strict=True)
        shape = (len(times), len(self._events) + len(self._columns))
        return csr_matrix(([1.0] * len(entries), (down, across)), shape=shape), [at_h for _, at_h in times]

    def solved(self, kappa: float) -> tuple[float, float]:
        """Mean completion time and makespan, in seconds."""
        ends = np.array([is_end for _, is_end, _ in self._events], dtype=float)
        cost = np.concatenate([ends[::-1].cumsum()[::-1] + kappa, np.full(len(self._columns), 1e-7)])
        found = linprog(cost, *self._rows, *self._fixed, method="highs")
        assert found.x is not None, found.message
        at_s = np.cumsum(found.x[: len(ends)]) * HOUR_S
        mean_s = float(at_s @ ends) / len(self._jobs) - sum(job.at_s for job in self._jobs) / len(self._jobs)
        return mean_s, float(at_s[-1]) - min(job.at_s for job in self._jobs)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attainable", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory with pollux/")
    parser.add_argument("--workload", type=int, default=1)
    parser.add_argument("--adaptive", action="store_true")
    said = parser.parse_args()
    pollux = said.data / "pollux"
    path = pollux / "workloads" / f"workload-{said.workload}.csv"
    case = Case(workload=path, profiles=pollux / "profiles", policy="swell", adaptive=said.adaptive, clairvoyant=True)
    jobs, ends_s = jobs_of(case), list[float]()
    for policy in ("swell", "afs-l"):
        outcome = simulate(replace(case, policy=policy))
        ends_s = ends_s or [row.ended_s for row in outcome.rows]
        wasted = ", ".join(f"{name} {hours:.0f}" for name, hours in wasted_h(outcome, jobs).items())
        print(f"{policy}: mean {outcome.summary['mean_jct_s']} s, makespan {outcome.summary['makespan_s']} s; {wasted}")
    plan = Plan(jobs, ends_s)
    for kappa in KAPPAS:
        mean_s, makespan_s = plan.solved(kappa)
        print(f"κ = {kappa:g}: mean {mean_s:.0f} s, makespan {makespan_s:.0f} s", flush=True)


if __name__ == "__main__":
    main()
