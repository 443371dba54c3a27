"""The daemon's reading of logs: what it tells, what it never tells twice, how it protects itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from swell.core.events import EpochEnded, Event
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.resources import Allocation, Part
from swell.core.state import JobRecord, JobState, Run, State
from swell.daemon.logwatch import LogWatch
from swell.ports import LogChunk

RUN = RunId(1, 1)


class Stage:
    """One running job, its log, and what was committed. Time goes on by hand."""

    def __init__(self, patterns: tuple[str, ...] = (), started_s: float = 100.0, epochs_done: int = 0) -> None:
        spec = JobSpec(name="x", command=("x",), progress_patterns=patterns)
        run = Run(id=RUN, allocation=Allocation(parts=(Part(node="n"),)), planned_s=99.0, started_s=started_s)
        record = JobRecord(id=1, spec=spec, submitted_s=0.0, state=JobState.RUNNING, run=run, epochs_done=epochs_done)
        self.state = State(jobs={1: record}, active={1: None})
        self.log = b""
        self.now_s = 100.0
        self.told: list[EpochEnded] = []
        self.watch = LogWatch(lambda: self.state, self._read, self._commit, lambda: self.now_s)

    async def _read(self, run: RunId, rank: int, offset: int, limit: int) -> LogChunk:
        data = self.log[offset : offset + limit]
        return LogChunk(data=data, offset=offset, next_offset=offset + len(data), end=False)

    async def _commit(self, events: Sequence[Event]) -> None:
        for event in events:
            assert isinstance(event, EpochEnded)
            self.told.append(event)
            self.state.jobs[1] = replace(self.state.jobs[1], epochs_done=event.epoch)

    def prints(self, text: str, after_s: float = 0.0) -> None:
        self.now_s += after_s
        self.log += text.encode()
        asyncio.run(self.watch._round([self.state.jobs[1]]))


def test_epochs_with_their_times_and_metrics() -> None:
    stage = Stage()
    stage.prints("Epoch 1/3\n")
    stage.prints("loss: 0.5\nEpo", after_s=8)
    stage.prints("ch 2/3\n", after_s=2)
    stage.prints("loss: 0.25\n", after_s=5)
    asyncio.run(stage.watch.finished(RUN))
    assert [(e.epoch, e.epoch_s, dict(e.metrics)) for e in stage.told] == [
        (1, 10.0, {"loss": 0.5}),
        (2, 5.0, {"loss": 0.25}),
    ]


def test_after_a_restart_of_the_daemon_nothing_is_told_twice_and_the_past_has_no_times() -> None:
    stage = Stage(started_s=10.0, epochs_done=2)
    stage.prints("Epoch 1\nEpoch 2\nEpoch 3\n")
    assert stage.told == []
    stage.prints("Epoch 4\n", after_s=7)
    stage.prints("Epoch 5\n", after_s=9)
    assert [(e.epoch, e.epoch_s) for e in stage.told] == [(3, 0.0), (4, 9.0)]


def test_a_pattern_that_could_take_for_ever_is_never_used() -> None:
    stage = Stage(patterns=(r"(?P<epoch>(a+)+)$", r"round (?P<epoch>\d+)"))
    stage.prints("a" * 200 + "!\nround 1\n")
    stage.prints("round 2\n", after_s=1)
    assert [e.epoch for e in stage.told] == [1]


def test_a_job_that_speaks_through_the_library_is_not_read() -> None:
    stage = Stage()
    stage.state.jobs[1] = replace(stage.state.jobs[1], uses_library=True)
    stage.log = b"Epoch 1\nEpoch 2\n"
    asyncio.run(stage.watch.finished(RUN))
    assert stage.told == []
