"""Which jobs slow each other on a shared GPU: step times with and without neighbours, from the events of every daemon.

A job's step time counts as alone or as shared by which jobs were on its GPU since its last report; a report during
which a neighbour came or went counts as neither. When the jobs on a GPU get less done together than they would in turns
(`sharing.pays_to_share`), the one that came last gets a GPU of its own from then on. A job that never ran alone is
assumed to be undisturbed, so that no job moves on a guess. O(jobs on the GPU) per event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from swell.core.events import EpochEnded, Event, JobRemoved, RunEnded, RunPlanned
from swell.core.ids import JobId
from swell.core.resources import Allocation
from swell.core.snapshot import Speed
from swell.core.state import JobRecord
from swell.placement.sharing import pays_to_share
from swell.ports import Remaining
from swell.speed import keeping
from swell.speed.describe import DescribedBook, Description

NEWEST = 0.5
"""Weight of the newest step time in the running mean."""

Spot = tuple[str, int]


@dataclass(slots=True)
class _Steps:
    alone_s: float = 0.0
    shared_s: float = 0.0


@dataclass(slots=True)
class Interference:
    """`alone`: jobs that must not share a GPU."""

    alone: dict[JobId, None] = field(default_factory=dict)
    _on: dict[Spot, dict[JobId, None]] = field(default_factory=dict)  # in order of coming
    _spot: dict[JobId, Spot] = field(default_factory=dict)
    _steps: dict[JobId, _Steps] = field(default_factory=dict)
    _mixed: dict[JobId, None] = field(default_factory=dict)  # a neighbour came or went since their last report

    def learn(self, event: Event) -> None:
        if isinstance(event, RunPlanned):
            self._leave(event.run.job)
            self._come(event.run.job, event.allocation)
        elif isinstance(event, EpochEnded):
            self._report(event)
        elif isinstance(event, RunEnded):
            self._leave(event.run.job)
        elif isinstance(event, JobRemoved):
            self._steps.pop(event.job, None)
            self.alone.pop(event.job, None)

    def _come(self, job: JobId, allocation: Allocation) -> None:
        if allocation.share is None or not allocation.gpus:
            return
        spot = (allocation.parts[0].node, allocation.parts[0].gpus[0])
        here = self._on.setdefault(spot, {})
        self._mixed.update(here)
        here[job] = None
        self._spot[job] = spot

    def _leave(self, job: JobId) -> None:
        spot = self._spot.pop(job, None)
        if spot is None:
            return
        here = self._on[spot]
        here.pop(job, None)
        self._mixed.pop(job, None)
        self._mixed.update(here)
        if not here:
            del self._on[spot]

    def _report(self, event: EpochEnded) -> None:
        job = event.run.job
        spot = self._spot.get(job)
        if spot is None or event.step_s <= 0:
            return
        if job in self._mixed:
            del self._mixed[job]
            return
        steps = self._steps.setdefault(job, _Steps())
        if len(self._on[spot]) == 1:
            steps.alone_s = _mean(steps.alone_s, event.step_s)
        else:
            steps.shared_s = _mean(steps.shared_s, event.step_s)
            self._judge(spot)

    def _judge(self, spot: Spot) -> None:
        together = list(self._on[spot])
        steps = [self._steps.get(job, _Steps()) for job in together]
        if not pays_to_share([s.alone_s for s in steps], [s.shared_s for s in steps]):
            self.alone[together[-1]] = None


def _mean(old_s: float, new_s: float) -> float:
    return new_s if not old_s else old_s + NEWEST * (new_s - old_s)


class WatchedBook:
    """A speed book that also watches which jobs slow each other."""

    follows_records = False

    def __init__(self, book: DescribedBook) -> None:
        self._book = book
        self._interference = Interference()

    def learn(self, event: Event) -> None:
        self._interference.learn(event)
        self._book.learn(event)

    @property
    def has_news(self) -> bool:
        return self._book.has_news

    def keep(self) -> bytes:
        return keeping.keep((self._interference, self._book.keep()))

    def restore(self, kept: bytes) -> bool:
        found = keeping.restore(kept)
        if isinstance(found, tuple) and self._book.restore(found[1]):
            self._interference = found[0]
            return True
        self._interference = Interference()
        self._book.restore(b"")
        return False

    def speed(self, job: JobRecord, gpus_per_node: Mapping[str, int]) -> Speed:
        return self._book.speed(job, gpus_per_node)

    def remaining(self, job: JobRecord) -> Remaining:
        return self._book.remaining(job)

    def describe(self, job: JobRecord, gpus_per_node: Mapping[str, int]) -> Description:
        return self._book.describe(job, gpus_per_node)

    def alone(self, job: JobId) -> bool:
        """This job has to have a GPU of its own."""
        return job in self._interference.alone
