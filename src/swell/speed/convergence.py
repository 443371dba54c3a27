"""Estimates how many epochs a job still needs if that is unset: from its loss, as Optimus does.

The loss of gradient descent falls about like l(e) = 1/(p·e + q) + r. For a given r that is linear in 1/(l - r); the
best of a few r is taken, later epochs weighing more. The job is taken to end where an epoch brings less than `DONE`
of what the first ones brought.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

DONE = 0.01
FEWEST = 4
"""A curve needs at least this many losses."""
LEAST = 1e-100
"""A smaller fall counts as none: its squared inverse would overflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convergence:
    slope: float
    offset: float
    floor: float

    def loss(self, epoch: float) -> float:
        return 1.0 / max(self.slope * epoch + self.offset, 1e-12) + self.floor

    def epochs(self) -> float:
        """The epoch from which on one more lowers the loss by less than `DONE` of the first one's fall."""
        # The fall at epoch e is about p / (p·e + q)²: it is DONE of the one at 0 where (p·e + q) = q / sqrt(DONE).
        if self.slope <= 0.0:
            return float("inf")
        return self.offset * (1.0 / sqrt(DONE) - 1.0) / self.slope


def fit_losses(losses: Sequence[tuple[int, float]]) -> Convergence | None:
    """The curve through (epoch, loss); None if they are too few or do not fall."""
    losses = sorted(dict(losses).items())
    if len(losses) < FEWEST:
        return None
    epochs = np.array([epoch for epoch, _ in losses], dtype=float)
    values = np.minimum.accumulate(np.array([loss for _, loss in losses], dtype=float))
    span = float(values[0] - values[-1])
    if span <= max(1e-9 * abs(float(values[0])), LEAST):
        return None
    weights = 0.5 + (epochs - epochs[0]) / max(1.0, float(epochs[-1] - epochs[0]))
    best: tuple[float, Convergence] | None = None
    for part in (0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8):
        floor = float(values[-1]) - part * span
        slope, offset = np.polyfit(epochs, 1.0 / (values - floor), 1, w=weights)
        if slope <= 0.0 or offset + slope * epochs[0] <= 0.0:
            continue
        found = Convergence(slope=float(slope), offset=float(offset), floor=floor)
        error = float(np.sum(weights * (np.array([found.loss(e) for e in epochs]) - values) ** 2))
        if best is None or error < best[0]:
            best = (error, found)
    return best[1] if best else None
