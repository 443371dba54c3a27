"""A snapshot of the daemon for forecasts: sent as bytes, so that nothing mutable is shared.

`Sender` and `Receiver` are the two ends. Records are frozen, so a record that has not changed since the last moment is
the same object and is not sent again: with 10,000 jobs, ten of them changed, a moment takes some kilobytes.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from swell.core import events as ev
from swell.core.events import Event
from swell.core.ids import JobId
from swell.core.job import JobSpec
from swell.core.resources import Node
from swell.core.snapshot import Options, Speed
from swell.core.state import JobRecord, State
from swell.ports import Remaining, SpeedBook

Answers = Mapping[JobId, tuple[Speed, Remaining]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The input of a forecast. `state` is a copy (`sim.forecast.copy_of`) and names policy and placer. `answers` are
    those of the speed book."""

    state: State
    answers: Answers
    alone: frozenset[JobId] = frozenset()  # jobs that must not share a GPU
    options: Options
    now_s: float


class KnownBook:
    """A read-only speed book with the answers of one moment."""

    follows_records = True

    def __init__(self, answers: Answers, alone: frozenset[JobId] = frozenset()) -> None:
        self._answers, self._alone = answers, alone

    def learn(self, event: Event) -> None:
        """Ignored: simulated events are no measurements."""

    def speed(self, job: JobRecord, gpus_per_node: Mapping[str, int]) -> Speed:
        return self._answers[job.id][0]

    def remaining(self, job: JobRecord) -> Remaining:
        return self._answers[job.id][1]

    def alone(self, job: JobId) -> bool:
        return job in self._alone


def answers_for(
    book: SpeedBook, specs: Iterable[JobSpec], first: JobId, now_s: float, gpus_per_node: Mapping[str, int]
) -> dict[JobId, tuple[Speed, Remaining]]:
    """Speed and remaining time of hypothetical jobs, numbered from `first`. The book forgets them again, because real
    jobs will get these numbers later."""
    found: dict[JobId, tuple[Speed, Remaining]] = {}
    for number, spec in enumerate(specs):
        nobody = JobRecord(id=-1 - number, spec=spec, submitted_s=now_s)
        found[first + number] = book.speed(nobody, gpus_per_node), book.remaining(nobody)
        book.learn(ev.JobRemoved(job=nobody.id, at_s=now_s))
    return found


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference to the moment sent before. `rest` has no jobs and nodes; `jobs` and `nodes` list those that
    exist."""

    rest: Moment
    jobs: tuple[JobId, ...]
    nodes: tuple[str, ...]
    records: dict[JobId, JobRecord]
    answers: dict[JobId, tuple[Speed, Remaining]]
    changed_nodes: dict[str, Node]


@dataclass(slots=True)
class Sender:
    """Remembers what its receiver has. Each receiver needs its own sender."""

    _records: Mapping[JobId, JobRecord] = field(default_factory=dict)
    _answers: Answers = field(default_factory=dict)
    _nodes: Mapping[str, Node] = field(default_factory=dict)

    def difference(self, moment: Moment) -> Difference:
        """What to send for this moment; differences must arrive in order."""
        state, answers = moment.state, moment.answers
        sent = Difference(
            rest=replace(moment, state=replace(state, jobs={}, nodes={}), answers={}),
            jobs=tuple(state.jobs),
            nodes=tuple(state.nodes),
            records={job: record for job, record in state.jobs.items() if self._records.get(job) is not record},
            answers={job: both for job, both in answers.items() if not _same(self._answers.get(job), both)},
            changed_nodes={name: node for name, node in state.nodes.items() if self._nodes.get(name) is not node},
        )
        self._records, self._answers, self._nodes = state.jobs, answers, state.nodes
        return sent


def _same(before: tuple[Speed, Remaining] | None, now: tuple[Speed, Remaining]) -> bool:
    return before is not None and before[0] is now[0] and before[1] is now[1]


@dataclass(slots=True)
class Receiver:
    _records: dict[JobId, JobRecord] = field(default_factory=dict)
    _answers: dict[JobId, tuple[Speed, Remaining]] = field(default_factory=dict)
    _nodes: dict[str, Node] = field(default_factory=dict)

    def moment(self, sent: Difference) -> Moment:
        self._records.update(sent.records)
        self._answers.update(sent.answers)
        self._nodes.update(sent.changed_nodes)
        self._records = {job: self._records[job] for job in sent.jobs}
        self._answers = {job: both for job, both in self._answers.items() if job in self._records}
        self._nodes = {name: self._nodes[name] for name in sent.nodes}
        state = replace(sent.rest.state, jobs=self._records, nodes=self._nodes)
        return replace(sent.rest, state=state, answers=self._answers)


def packed(value: object) -> bytes:
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def unpacked(data: bytes) -> object:
    return pickle.loads(data)  # noqa: S301 - from the daemon itself, over a pipe or from a thread
