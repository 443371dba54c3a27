"""How a simulated world differs from its measurements: jobs, runs and reports, each off by chance.

Both worlds (`sim.training_world`, `sim.duration_world`) ask here. The same seed and id give the same deviation.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from swell.core.ids import JobId, RunId


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """All zero: the world is as measured."""

    speed: float = 0.0  # relative standard deviation of the true speed of a job from its profile
    straggler: float = 0.0  # probability that a run is slow
    slowdown: float = 0.5  # speed of a slow run
    report: float = 0.0  # relative standard deviation of what is reported

    def of_job(self, job: JobId, seed: int) -> float:
        """By which the speed of a job, or the time it takes, differs from what was measured."""
        return _rng(seed, "speed", job).lognormvariate(0.0, self.speed) if self.speed else 1.0

    def of_run(self, run: RunId, seed: int) -> float:
        """Speed of a run relative to that of its job: less than 1 for a straggler."""
        slow = bool(self.straggler) and _rng(seed, "straggler", run).random() < self.straggler
        return self.slowdown if slow else 1.0

    def of_report(self, run: RunId, epoch: int, seed: int) -> float:
        """By which the times in the report of an epoch are wrong."""
        return _rng(seed, "report", f"{run}/{epoch}").lognormvariate(0.0, self.report) if self.report else 1.0


def _rng(seed: int, what: str, key: object) -> random.Random:
    return random.Random(f"{seed}/{what}/{key}")  # noqa: S311 - a simulation
