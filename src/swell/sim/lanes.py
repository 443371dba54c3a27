"""Spans: which run held which GPUs from when to when. The lanes of the dashboard and of reports are drawn from them.

Spans of a live cluster come from its record (`api.timeline`), those of a simulation from watching it (`Watch`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest

import msgspec

from swell.core.events import Event, RunEnded, RunPlanned, RunResized
from swell.core.ids import RunId
from swell.core.resources import Allocation
from swell.core.state import JobRecord, State
from swell.ports import PastRun


class Span(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one run held from when to when; a run that was resized in place has several. Without `to_s` it still holds
    it. `reason` says why it got this; `stop` and `stop_reason` why it was asked to leave; `exit` how it ended."""

    job: int
    attempt: int
    name: str
    user: str
    from_s: float
    where: list[tuple[str, tuple[int, ...]]]
    to_s: float | None = None
    started_s: float | None = None
    reason: str = ""
    share: bool = False
    stop: str = ""
    stop_reason: str = ""
    stop_s: float | None = None
    exit: str = ""
    exit_code: int | None = None


def spans_of(past: PastRun) -> Iterator[Span]:
    run, stop = past.run, past.run.stop
    for (from_s, allocation), after in zip_longest(past.held, past.held[1:]):
        last = after is None
        yield Span(
            job=run.id.job,
            attempt=run.id.attempt,
            name=past.name,
            user=past.user,
            from_s=from_s,
            to_s=run.ended_s if last else after[0],
            started_s=run.started_s,
            where=[(part.node, part.gpus) for part in allocation.parts],
            share=allocation.share is not None,
            reason=run.reason,
            stop=stop.why if stop and last else "",
            stop_reason=stop.reason if stop and last else "",
            stop_s=stop.at_s if stop and last else None,
            exit=run.exit_reason or "" if last else "resized",
            exit_code=run.exit_code if last else None,
        )


@dataclass(slots=True)
class Watch:
    """Observes a simulation and keeps its runs, the first `most` of them."""

    most: int
    runs: list[PastRun] = field(default_factory=list)
    truncated: bool = False
    _held: dict[RunId, list[tuple[float, Allocation]]] = field(default_factory=dict)

    def begin(self, state: State) -> None:
        """For a simulation that goes on from a live state: what its runs hold already."""
        for job in state.active:
            run = state.jobs[job].run
            if run is not None and state.jobs[job].holding:
                self._held[run.id] = [(max(run.planned_s, run.changed_s), run.allocation)]

    def __call__(self, state: State, event: Event) -> None:
        if isinstance(event, RunPlanned):
            self._held[event.run] = [(event.at_s, event.allocation)]
        elif isinstance(event, RunResized):
            self._held[event.run].append((event.at_s, event.allocation))
        elif isinstance(event, RunEnded):
            self._keep(state.jobs[event.run.job])

    def end(self, state: State) -> None:
        """Keep the runs that had not ended when the simulation did."""
        for run in list(self._held):
            self._keep(state.jobs[run.job])

    def _keep(self, job: JobRecord) -> None:
        assert job.run is not None  # it was planned
        held = tuple(self._held.pop(job.run.id))
        if len(self.runs) >= self.most:
            self.truncated = True
            return
        self.runs.append(PastRun(run=job.run, name=job.spec.name, user=job.spec.user, held=held))

    def spans(self) -> list[Span]:
        return sorted((span for run in self.runs for span in spans_of(run)), key=lambda span: (span.from_s, span.job))
