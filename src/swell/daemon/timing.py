"""Durations of decisions, measured in the pass and passed to listeners (`api.metrics`)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from swell.core.decision import Layout
from swell.core.snapshot import Snapshot
from swell.ports import Placed, Placer, Random


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimes:
    """The times of one pass. `policy_s` and `placement_s` are the decision; the rest is the snapshot and the log."""

    policy: str
    whole_s: float
    policy_s: float
    placement_s: float


class TimedPlacer:
    """Wraps a placer; `took_s` is the time of its last placement."""

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self.took_s = 0.0

    @property
    def name(self) -> str:
        return self._placer.name

    def place(self, snapshot: Snapshot, wanted: Sequence[Placed], rng: Random) -> Layout:
        began_s = time.perf_counter()
        try:
            return self._placer.place(snapshot, wanted, rng)
        finally:
            self.took_s = time.perf_counter() - began_s
