"""The reference store, in memory: a list and a few dictionaries. It states in the fewest lines what the other stores
must do. For tests and trials; everything is lost when the process ends."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from swell.core.errors import StoreError
from swell.core.events import Event, RunPlanned, RunResized
from swell.core.ids import JobId, RunId
from swell.core.state import JobRecord, Run, State, copy_of
from swell.ports import Consumption, JobQuery, PastRun, Stored
from swell.store.projection import consumed, past_run, project, states_of


class MemoryStore:
    epoch = 1
    first_seq = 1

    def still_ours(self) -> bool:
        return True

    def __init__(self, cluster_id: str = "memory") -> None:
        self.cluster_id = cluster_id
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._state = State()
        self._book = (0, b"")
        self._jobs: dict[JobId, JobRecord] = {}
        self._runs: dict[RunId, Run] = {}

    def append(self, first_seq: int, events: Sequence[Event]) -> None:
        with self._lock:
            if first_seq != len(self._events) + 1:
                raise StoreError(f"event {first_seq} cannot follow event {len(self._events)}")
            state = copy_of(self._state)
            changes = project(state, events)
            self._events.extend(events)
            self._state = state
            self._jobs.update(changes.jobs)
            self._runs.update(changes.runs)
            self._jobs.update(changes.reported)
            self._runs.update({job.run.id: job.run for job in changes.reported.values() if job.run is not None})
            for job in changes.removed:
                self._remove(job)

    def _remove(self, job: JobId) -> None:
        self._jobs.pop(job, None)
        for run in [run for run in self._runs if run.job == job]:
            del self._runs[run]

    def prove_writable(self) -> None:
        """Memory is always writable."""

    def events(self, after_seq: int = 0, limit: int | None = None) -> Sequence[Stored]:
        end = None if limit is None else after_seq + limit
        with self._lock:
            found = self._events[after_seq:end]
        return [Stored(seq=seq, event=event) for seq, event in enumerate(found, start=after_seq + 1)]

    def checkpoint(self, state: State, book: bytes = b"") -> None:
        if state.seq > len(self._events):
            raise StoreError(
                f"a checkpoint at event {state.seq} is ahead of the log, which ends at {len(self._events)}"
            )
        self._book = (state.seq, book) if book else self._book

    def book(self) -> tuple[int, bytes]:
        return self._book

    def compact(self, before_s: float, limit: int) -> int:
        """All of it goes when the process ends."""
        return 0

    def load(self) -> State:
        with self._lock:
            return copy_of(self._state)

    def jobs(self, query: JobQuery) -> Sequence[JobRecord]:
        states = states_of(query)
        with self._lock:
            newest_first = sorted(self._jobs.values(), key=lambda job: -job.id)
        found = (
            job
            for job in newest_first
            if job.state in states
            and (not query.user or job.spec.user == query.user)
            and (not query.batch or job.batch == query.batch)
            and (not query.after or job.id < query.after)
            and (job.ended_s is None or job.ended_s >= query.ended_since_s)
        )
        return [job for job, _ in zip(found, range(query.limit), strict=False)]

    def ended_before(self, before_s: float, limit: int) -> Sequence[JobId]:
        with self._lock:
            jobs = sorted(self._jobs.items())
        return [job for job, record in jobs if record.ended_s is not None and record.ended_s < before_s][:limit]

    def consumed_since(self, since_s: float) -> Sequence[Consumption]:
        with self._lock:
            ended = [job for job in self._jobs.values() if job.ended_s is not None and job.ended_s >= since_s]
        return consumed(ended)

    def job(self, job: JobId) -> JobRecord | None:
        with self._lock:
            return self._jobs.get(job)

    def runs(self, job: JobId) -> Sequence[Run]:
        with self._lock:
            return [self._runs[run] for run in sorted(self._runs) if run.job == job]

    def runs_between(self, from_s: float, to_s: float, limit: int) -> Sequence[PastRun]:
        with self._lock:
            runs = sorted(self._runs.values(), key=lambda run: (-run.planned_s, run.id))
            changes = [event for event in self._events if isinstance(event, RunPlanned | RunResized)]
        found = [run for run in runs if run.planned_s < to_s and (run.ended_s is None or run.ended_s >= from_s)]
        specs = {run.id.job: self._jobs[run.id.job].spec for run in found[:limit]}
        return [past_run(run, specs[run.id.job].name, specs[run.id.job].user, changes) for run in found[:limit]]

    def close(self) -> None:
        """Nothing to give back."""
