"""The daemon's reading of logs: what it tells, what it never tells twice, how it protects itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from swell.core.events import EpochEnded, Event
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.resources import Allocation, Node, Part
from swell.core.state import JobRecord, JobState, Run, State
from swell.daemon.logwatch import REPORT_EVERY_S, LogWatch
from swell.ports import LogChunk

RUN = RunId(1, 1)


class Stage:
    """One running job, its log, and what was committed. Time goes on by hand."""

    def __init__(
        self, patterns: tuple[str, ...] = (), started_s: float = 100.0, epochs_done: int = 0, **known: Any
    ) -> None:
        spec = JobSpec(name="x", command=("x",), progress_patterns=patterns)
        run = Run(id=RUN, allocation=Allocation(parts=(Part(node="n"),)), planned_s=99.0, started_s=started_s)
        job = JobRecord(id=1, spec=spec, submitted_s=0.0, state=JobState.RUNNING, run=run, epochs_done=epochs_done)
        record = replace(job, **known)
        self.state = State(jobs={1: record}, active={1: None})
        self.log = b""
        self.now_s = 100.0
        self.age_s = 0.0
        self.told: list[EpochEnded] = []
        self.watch = LogWatch(lambda: self.state, self._read, self._commit, lambda: self.now_s)

    async def _read(self, run: RunId, rank: int, offset: int, limit: int) -> LogChunk:
        data = self.log[offset : offset + limit]
        return LogChunk(data=data, offset=offset, next_offset=offset + len(data), end=False, age_s=self.age_s)

    async def _commit(self, events: Sequence[Event]) -> None:
        for event in events:
            assert isinstance(event, EpochEnded)
            self.told.append(event)
            self.state.jobs[1] = replace(self.state.jobs[1], epochs_done=event.epoch)

    def prints(self, text: str, after_s: float = 0.0) -> None:
        self.now_s += after_s
        self.log += text.encode()
        asyncio.run(self._look())

    async def _look(self) -> None:
        await self.watch._round([self.state.jobs[1]])
        await self.watch.stop()


def test_epochs_with_their_times_and_metrics() -> None:
    stage = Stage()
    stage.prints("Epoch 1/3\n")
    stage.prints("loss: 0.5\nEpo", after_s=8)
    stage.prints("ch 2/3\n", after_s=2)
    stage.prints("loss: 0.25\n", after_s=5)
    asyncio.run(stage.watch.ended(RUN, well=True))
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


def test_a_jobs_own_pattern_is_matched_beside_the_daemon() -> None:
    stage = Stage(patterns=(r"round (?P<epoch>\d+)",))
    stage.prints("round 1\nround 2\n")
    stage.prints("something else\nround 3\n", after_s=9)
    assert [e.epoch for e in stage.told] == [1, 2]


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?P<epoch>(a+)+)$",
        r"(?:a|aa)+b",
        r"(?:a{1,50}){1,50}b",
        r"(?:a?){50}a{50}b",
        r"a*a*a*a*a*a*a*a*b",
        r"(?=(?:a|aa)+b)",
        r"(?<=a+)b",
    ],
)
def test_a_pattern_made_to_take_for_ever_or_that_is_none_is_disabled_and_blocks_nobody(pattern: str) -> None:
    """Also while the process matches, others go on: the loop of the daemon is free."""
    stage = Stage(patterns=(pattern, r"round (?P<epoch>\d+)"))
    stage.log = b"a" * 200 + b"!\nEpoch 1\nEpoch 2\n"
    waits_s: list[float] = []

    async def others() -> None:
        while True:
            began_s = time.monotonic()
            await asyncio.sleep(0.01)
            waits_s.append(time.monotonic() - began_s)

    async def both() -> None:
        beside = asyncio.create_task(others())
        await stage._look()
        beside.cancel()

    asyncio.run(both())
    assert [e.epoch for e in stage.told] == [1]
    assert stage.watch._readings[RUN].patterns == ()
    assert waits_s
    assert sorted(waits_s)[len(waits_s) // 2] < 0.1


def test_a_job_that_speaks_through_the_library_is_not_read() -> None:
    stage = Stage()
    stage.state.jobs[1] = replace(stage.state.jobs[1], uses_library=True)
    stage.log = b"Epoch 1\nEpoch 2\n"
    asyncio.run(stage.watch.ended(RUN, well=True))
    assert stage.told == []


def test_lines_have_the_time_at_which_the_log_grew_not_that_of_the_look() -> None:
    stage = Stage()
    stage.prints("Epoch 1/300\n")
    stage.age_s = 1.5
    stage.prints("Epoch 2/300\n", after_s=10)
    assert [(e.epoch, e.epochs, e.epoch_s) for e in stage.told] == [(1, 300, 8.5)]
    stage.age_s = 50.0  # a clock that was set, or nothing new: a line is not older than the look before it
    stage.prints("Epoch 3/300\n", after_s=10)
    assert stage.told[-1].epoch_s == 1.5


def test_one_event_per_report_interval_not_per_line() -> None:
    stage = Stage()
    for _ in range(600):
        first = len(stage.log.split(b"\n"))
        stage.prints("".join(f"Epoch {first + n}\n" for n in range(10)), after_s=1.0)
    told = stage.told
    assert len(told) <= 600 / REPORT_EVERY_S + 7
    assert sum(e.count for e in told) == told[-1].epoch
    assert all(abs(e.epoch_s - 0.1) < 0.02 for e in told[2:]), "lines that came together have no time of 0"


def test_a_job_that_counts_steps_is_read_in_steps_and_nothing_is_in_a_checkpoint_for_that() -> None:
    stage = Stage(unit="step", epochs_total=6000, epochs_done=3100, epochs_saved=3000)
    for step in range(3000, 3400, 50):
        stage.prints(f"iter {step}: loss 1.5, time 20ms\n", after_s=5)
    asyncio.run(stage.watch.ended(RUN, well=False))
    last = stage.told[-1]
    assert [e.epoch for e in stage.told] == sorted({e.epoch for e in stage.told})
    assert (last.epoch, last.unsaved, last.epoch_s, dict(last.metrics)) == (3350, 350, 0.1, {"loss": 1.5})
    assert stage.told[0].epoch > 3100, "an attempt that came further has reported that"


def test_the_end_of_an_epoch_is_no_checkpoint() -> None:
    """Many scripts save every tenth epoch: one that was stopped after any other would lose what came since."""
    for checkpoints, node, unsaved in (
        ("ckpt", Node(name="n"), [1, 3]),
        ("ckpt", Node(name="n", executor="ssh"), [1, 3]),
        ("ckpt", Node(name="n", executor="kubernetes"), [0, 0]),  # nobody sees its files
        ("", Node(name="n", executor="kubernetes"), [1, 3]),
    ):
        stage = Stage()
        job = stage.state.jobs[1]
        stage.state.jobs[1] = replace(job, spec=replace(job.spec, checkpoint_dir=checkpoints))
        stage.state.nodes["n"] = node
        stage.prints("Epoch 1/9\n")
        stage.prints("Epoch 2/9\n", after_s=8)
        stage.prints("Epoch 4/9\n", after_s=2 * REPORT_EVERY_S)
        assert [e.unsaved for e in stage.told] == unsaved, (checkpoints, node)


def test_a_stop_that_waits_for_a_checkpoint_makes_no_event_per_line() -> None:
    stage = Stage()
    stage.state.nodes["n"] = Node(name="n")
    stage.state.jobs[1] = replace(stage.state.jobs[1], state=JobState.STOPPING)
    for number in range(1, 101):
        stage.prints(f"Epoch {number}\n", after_s=1.0)
    assert len(stage.told) <= 8


def test_what_was_read_is_reported_when_the_run_was_stopped() -> None:
    stage = Stage()
    for number in range(1, 9):
        stage.prints(f"Epoch {number}\n", after_s=0.4)
    before = stage.told[-1].epoch
    asyncio.run(stage.watch.ended(RUN, well=False))
    assert before < 7
    assert stage.told[-1].epoch == 7


def test_a_last_line_that_was_not_ended_counts_when_the_run_has() -> None:
    """A progress bar that nobody closes."""
    stage = Stage(unit="step", epochs_total=300)
    stage.prints("".join(f"{done // 3:3d}%|  | {done}/300 [00:00<00:30]\r" for done in range(0, 300, 10)))
    stage.prints("100%|##| 300/300 [00:30<00:00]", after_s=15)
    asyncio.run(stage.watch.ended(RUN, well=True))
    assert [end.epoch for end in stage.told] == [290, 300]
