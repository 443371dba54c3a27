"""Lists pending, running and recently ended jobs from memory, in the order of the store: the most frequent query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from swell.core.state import JobRecord, JobState, State
from swell.ports import JobQuery

IN_MEMORY = frozenset({"queued", "running"})


def active_jobs(state: State, query: JobQuery) -> Sequence[JobRecord]:
    """A page of a group that is IN_MEMORY, newest first."""
    return list(islice(_found(state, query), query.limit))


def _found(state: State, query: JobQuery) -> Iterator[JobRecord]:
    waits, jobs = query.group == "queued", state.jobs
    for job in reversed(state.active):
        record = jobs[job]
        if (
            (record.state is JobState.QUEUED) == waits
            and (not query.after or job < query.after)
            and (not query.user or record.spec.user == query.user)
            and (not query.batch or record.batch == query.batch)
        ):
            yield record


def lately_ended(state: State, query: JobQuery) -> Sequence[JobRecord]:
    """Ended jobs that are still in memory, the last to end first, regardless of their ids."""
    ended = (state.jobs[job] for job in reversed(state.ended))
    found = (
        record
        for record in ended
        if (not query.user or record.spec.user == query.user) and (not query.batch or record.batch == query.batch)
    )
    return list(islice(found, query.limit))
