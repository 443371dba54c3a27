"""Secrets of jobs are kept apart from what happened: in a table of their own, by job and name.

The log, the records and the checkpoints hold a mark in place of each value. `rm` deletes the job's rows of the table;
nothing else holds them. A mark that was not replaced by its value cannot be launched: it has a NUL, which no variable
may.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from swell.core.events import Event, JobSubmitted
from swell.core.ids import JobId
from swell.core.job import JobSpec
from swell.core.state import JobRecord, State

HIDDEN = "\0secret"

T = TypeVar("T")
Row = tuple[JobId, str, bytes]


def concealed(value: T) -> T:
    """The same event or record, with marks instead of secrets."""
    if isinstance(value, JobSubmitted | JobRecord) and value.spec.secrets:
        return replace(value, spec=_with(value.spec, dict.fromkeys(value.spec.secrets, HIDDEN)))
    return value


def rows_of(events: Sequence[Event]) -> list[Row]:
    """What the table gets of these events."""
    return [
        (event.job, name, event.spec.env[name].encode("utf-8", "surrogatepass"))
        for event in events
        if isinstance(event, JobSubmitted)
        for name in event.spec.secrets
        if event.spec.env.get(name, HIDDEN) != HIDDEN
    ]


def reveal(state: State, rows: Iterable[Row]) -> None:
    """Put the secrets of the table where they belong in a state that was read."""
    by_job: dict[JobId, list[Row]] = {}
    for row in rows:
        by_job.setdefault(row[0], []).append(row)
    for job, known in by_job.items():
        if (record := state.jobs.get(job)) is not None:
            state.jobs[job] = revealed(record, known)


def revealed(record: JobRecord, rows: Iterable[Row]) -> JobRecord:
    """The record with the secrets of its job."""
    values = {name: bytes(value).decode("utf-8", "surrogatepass") for _, name, value in rows}
    return replace(record, spec=_with(record.spec, values))


def _with(spec: JobSpec, values: Mapping[str, str]) -> JobSpec:
    return replace(spec, env={name: values.get(name, value) for name, value in spec.env.items()})
