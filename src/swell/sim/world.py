"""What the simulator's brain does not decide: how fast runs are, what they report, how long they take to stop.

A world answers with events that will happen unless the run is ended before. The engine keeps them on its agenda and
drops those that have become stale. Worlds keep the truth; what a policy sees comes from its speed book.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from swell.core.events import Event
from swell.core.state import JobRecord, Run
from swell.sim.workload import Arrival


class World(Protocol):
    def submitted(self, job: JobRecord, arrival: Arrival) -> None:
        """A job came; remember what is true of it."""
        ...

    def launched(self, job: JobRecord, now_s: float) -> Sequence[Event]:
        """Its run was planned: when will it be up, and begin to train?"""
        ...

    def after(self, event: Event, job: JobRecord) -> Sequence[Event]:
        """This happened to its run: what comes next (the next report, the end)?"""
        ...

    def stopping(self, job: JobRecord, now_s: float) -> Sequence[Event]:
        """Its run was asked to stop."""
        ...

    def lost(self, job: JobRecord, now_s: float) -> None:
        """Its run is gone with its node: what was not in a checkpoint is lost."""
        ...

    def resized(self, job: JobRecord, now_s: float) -> Sequence[Event]:
        """Its run holds another allocation from now on, without a restart."""
        ...

    def fair_s(self, job: JobRecord, share: Mapping[str, float]) -> float:
        """How long it would have taken alone on these numbers of GPUs per type (fractions: time slices)."""
        ...


def run_of(job: JobRecord) -> Run:
    assert job.run is not None  # asked only about jobs with a run
    return job.run
