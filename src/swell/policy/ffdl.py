"""FfDL optimizer: the greatest sum of speedups, exactly.

1. The longest prefix by submission whose minimums fit is admitted (a job too large for all there is does not end it).
2. Maximise Σ S_j(n_j) over min_j ≤ n_j ≤ max_j, Σ n_j ≤ GPUs; on ties the smallest n, the last job first.

Jobs with concave curves are merged into one: of their one-GPU steps, the k largest are best for every k at once. The
others (speeds that pause and go on, sizes with gaps) are added one by one by dynamic programming over the GPUs beyond
the minimums, each vectorised. Exact; O(Σ steps log steps + GPUs · Σ steps of jobs that are not concave). Above
`MAX_WORK` of the latter, the steps of the upper concave envelopes are taken by gain per GPU instead (off the optimum
by less than one step).

With several GPU types the minimums choose the type (fastest with room, as everywhere) and each type is solved by
itself. (Saxena et al., Effective elastic scaling of deep learning workloads, MASCOTS 2020.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from swell.core.decision import Decision, Grant
from swell.core.ids import JobId
from swell.core.resources import GPU_MILLI
from swell.core.snapshot import JobView, Snapshot
from swell.policy.base import GAIN, Ladder, Memory, OwnReasons, Purse, grant, ladder
from swell.policy.options import NO_OPTIONS
from swell.ports import Random

MAX_WORK = 400_000_000
"""Array elements looked at in one decision: a second or two."""

Step = tuple[int, float]
"""(GPUs beyond the minimum, speed beyond the minimum's)"""


class Ffdl:
    name = "ffdl"
    elastic = True
    weighs_restarts = False
    OPTIONS = NO_OPTIONS

    def decide(self, snapshot: Snapshot, memory: Memory, rng: Random) -> Decision:
        purse = Purse(snapshot.capacity)
        grants, reasons = _longest_prefix(snapshot, purse)
        groups: dict[str, list[JobView]] = {}
        for job in snapshot.jobs:
            if job.id in grants and job.gpu_milli and len(job.sizes) > 1:
                groups.setdefault(grants[job.id].gpu_type, []).append(job)
        for gpu_type, jobs in sorted(groups.items()):
            surplus = purse.milli[gpu_type] // GPU_MILLI
            extras = best_extras([ladder(job, gpu_type) for job in jobs], surplus)
            for job, extra in zip(jobs, extras, strict=True):
                grants[job.id] = grant(job.sizes[0] + extra, gpu_type)
        return Decision(grants=grants, reasons=reasons, memory=memory)


def _longest_prefix(snapshot: Snapshot, purse: Purse) -> tuple[dict[JobId, Grant], OwnReasons]:
    grants: dict[JobId, Grant] = {}
    reasons: OwnReasons = {}
    whole = Purse(snapshot.capacity)
    ended = False
    for job in snapshot.jobs:
        n = job.sizes[0]
        gpu_type = None if ended and job.gpu_milli else purse.best_type(job, n)
        if gpu_type is None:
            reasons[job.id] = purse.no_room(job, n)
            ended = ended or whole.best_type(job, n) is not None
            continue
        purse.take(job, n, gpu_type)
        grants[job.id] = grant(n, gpu_type)
    return grants, reasons


def best_extras(ladders: list[Ladder], surplus: int) -> list[int]:
    """For each ladder how many GPUs beyond its first rung, at most `surplus` in all, for the greatest sum of speeds."""
    problem = _Problem(surplus=surplus)
    for number, rungs in enumerate(ladders):
        problem.add(number, rungs)
    return problem.solve(len(ladders))


@dataclass(slots=True)
class _Problem:
    surplus: int
    ones: list[tuple[float, int, int]] = field(default_factory=list)  # (-gain, job, rung): one-GPU steps
    others: list[tuple[int, list[Step]]] = field(default_factory=list)

    def add(self, number: int, rungs: Ladder) -> None:
        sizes, speeds = rungs.sizes, rungs.speeds
        base = sizes[0]
        count = len(sizes)
        while count > 1 and sizes[count - 1] - base > self.surplus:
            count -= 1
        if count == 1:
            return
        gains = [speeds[i] - speeds[i - 1] for i in range(1, count)]
        consecutive = sizes[count - 1] - base == count - 1
        if consecutive and all(b <= a * GAIN for a, b in pairwise(gains)):
            self.ones.extend((-gain, number, i) for i, gain in enumerate(gains))
        else:
            self.others.append((number, [(sizes[i] - base, speeds[i] - speeds[0]) for i in range(1, count)]))

    def solve(self, jobs: int) -> list[int]:
        work = sum(len(steps) for _, steps in self.others) * (self.surplus + 1)
        if work > MAX_WORK:
            return self._by_envelope(jobs)
        self.ones.sort()
        extras = [0] * jobs
        left = self._dynamic(extras) if self.others else self.surplus
        for _, number, _ in self.ones[:left]:
            extras[number] += 1
        return extras

    def _dynamic(self, extras: list[int]) -> int:
        """Fill in the jobs that are not concave; how many GPUs are best left to those that are."""
        value: npt.NDArray[np.float64] = np.zeros(self.surplus + 1)
        gains = np.array([-minus for minus, _, _ in self.ones[: self.surplus]])
        value[1 : len(gains) + 1] = np.cumsum(gains)
        value[len(gains) + 1 :] = value[len(gains)]
        choices = []
        for _, steps in self.others:
            value, choice = _with_job(value, steps)
            choices.append(choice)
        left = self.surplus
        for (number, steps), choice in zip(reversed(self.others), reversed(choices), strict=True):
            chosen = int(choice[left])
            if chosen:
                extras[number] = steps[chosen - 1][0]
                left -= extras[number]
        return left

    def _by_envelope(self, jobs: int) -> list[int]:
        """By gain per GPU along the upper concave envelopes; a job whose step does not fit is left where it is."""
        steps = [(minus, number, rung, 1) for minus, number, rung in self.ones]
        for number, options in self.others:
            for rung, (gpus, gain) in enumerate(_envelope(options)):
                steps.append((-gain / gpus, number, rung, gpus))
        steps.sort()
        extras = [0] * jobs
        stuck = [False] * jobs
        left = self.surplus
        for _, number, _, gpus in steps:
            if gpus > left or stuck[number]:
                stuck[number] = True
                continue
            extras[number] += gpus
            left -= gpus
        return extras


def _with_job(
    value: npt.NDArray[np.float64], steps: list[Step]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.uint16]]:
    """The best value for each number of GPUs with one job more, and which of its steps that takes (0: none)."""
    best = value.copy()
    choice = np.zeros(len(value), dtype=np.uint16)
    for index, (gpus, gain) in enumerate(steps, start=1):
        candidate = value[:-gpus] + gain
        better = candidate > best[gpus:] * GAIN
        np.copyto(best[gpus:], candidate, where=better)
        choice[gpus:][better] = index
    return best, choice


def _envelope(options: list[Step]) -> list[Step]:
    """Steps (GPUs more, gain) between corners of the upper concave envelope of (0, 0) and these."""
    corners: list[Step] = [(0, 0.0)]
    for gpus, gain in options:
        while len(corners) > 1 and _below(corners[-2], corners[-1], (gpus, gain)):
            corners.pop()
        corners.append((gpus, gain))
    return [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(corners)]


def _below(a: Step, b: Step, c: Step) -> bool:
    """Is b on or under the line from a to c?"""
    return (b[1] - a[1]) * (c[0] - a[0]) <= (c[1] - a[1]) * (b[0] - a[0])
