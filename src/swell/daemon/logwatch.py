"""Progress of jobs without the library, from what they print: reads on in their logs and tells of epochs that ended.

Only rank 0 of running jobs that have not spoken through the library is read, a bounded piece at a time. A pattern of a
job's own that is slow on one line is not used again: nobody's log holds up the daemon.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from swell.core.errors import SwellError
from swell.core.events import EpochEnded, Event
from swell.core.ids import RunId
from swell.core.progress import EpochsDone, Track, finish, follow, harmless, read_line
from swell.core.state import JobRecord, JobState, Run, State
from swell.ports import LogChunk

log = logging.getLogger(__name__)

EVERY_S = 2.0
BUDGET_S = 0.1
"""So much time goes into matching in one round, whatever jobs print; whoever was left out is first in the next."""
PIECE = 64 * 1024
LAST_PIECES = 16
SLOW_LINE_S = 0.05
LATE_S = 5.0
"""A run that is older when it is first looked at began before this daemon did: its past has no times."""

_WORTH_A_LOOK = re.compile(rb"(?i)epoch|loss|acc|speed|throughput|f1|auc|perplexity|mae|mse|entropy")

ReadLog = Callable[[RunId, int, int, int], Awaitable[LogChunk]]
Commit = Callable[[Sequence[Event]], Awaitable[None]]


@dataclass(slots=True)
class _Reading:
    """How far one run's log has been read."""

    patterns: tuple[re.Pattern[str], ...]
    timed_from_s: float
    offset: int = 0
    rest: bytes = b""
    track: Track = field(default_factory=Track)


class LogWatch:
    def __init__(self, state: Callable[[], State], read: ReadLog, commit: Commit, now_s: Callable[[], float]) -> None:
        self._state, self._read, self._commit, self._now_s = state, read, commit, now_s
        self._readings: dict[RunId, _Reading] = {}
        self._spent_s = 0.0
        self._first = 0

    async def run(self) -> None:
        """For ever. Trouble with one log (its machine is away, the disk is full) waits for the next round."""
        while True:
            await asyncio.sleep(EVERY_S)
            watched = [record for job in list(self._state().active) if _silent(record := self._state().jobs[job])]
            await self._round(watched)
            current = {record.run.id for record in watched if record.run is not None}
            self._readings = {run: reading for run, reading in self._readings.items() if run in current}

    async def _round(self, watched: Sequence[JobRecord]) -> None:
        self._spent_s = 0.0
        start = self._first % len(watched) if watched else 0
        for record in (*watched[start:], *watched[:start]):
            if self._spent_s > BUDGET_S:
                return
            self._first += 1
            try:
                await self._look(record)
            except (SwellError, OSError) as error:
                log.debug("log of job %s: %s", record.id, error)

    async def finished(self, run: RunId) -> None:
        """The run has ended well: what its log says to the end is told before that."""
        record = self._state().jobs.get(run.job)
        if record is None or record.run is None or record.run.id != run or not _silent(record):
            return
        try:
            for _ in range(LAST_PIECES):
                if not await self._look(record):
                    break
            reading = self._readings.pop(run, None)
            last = finish(reading.track, self._now_s(), record.run.epochs_before) if reading is not None else None
            if reading is not None and last is not None:
                await self._commit(self._events(record, record.run, [self._timed(reading, reading.track, last)]))
        except (SwellError, OSError) as error:
            log.debug("end of the log of job %s: %s", record.id, error)

    async def _look(self, record: JobRecord) -> bool:
        """Read one piece. True if there may be more."""
        run = record.run
        assert run is not None  # `_silent`
        reading = self._readings.get(run.id)
        if reading is None:
            reading = self._readings[run.id] = self._open(record, run)
        chunk = await self._read(run.id, 0, reading.offset, PIECE)
        reading.offset = chunk.next_offset
        data = reading.rest + chunk.data
        *lines, reading.rest = data.replace(b"\r", b"\n").split(b"\n")
        reading.rest = reading.rest[-PIECE:]
        if not reading.patterns and _WORTH_A_LOOK.search(data) is None:
            lines = []
        began_s = time.perf_counter()
        done = [ended for line in lines if (ended := self._line(reading, run, line)) is not None]
        self._spent_s += time.perf_counter() - began_s
        await self._commit(self._events(record, run, done))
        return bool(chunk.data)

    def _open(self, record: JobRecord, run: Run) -> _Reading:
        now_s = self._now_s()
        late = run.started_s is not None and now_s - run.started_s > LATE_S
        own = tuple(re.compile(text) for text in record.spec.progress_patterns if harmless(text))
        return _Reading(patterns=own, timed_from_s=now_s if late else 0.0)

    def _line(self, reading: _Reading, run: Run, line: bytes) -> EpochsDone | None:
        began_s = time.perf_counter()
        seen = read_line(line.decode(errors="replace"), reading.patterns)
        if reading.patterns and time.perf_counter() - began_s > SLOW_LINE_S:
            reading.patterns = ()
            log.warning("run %s: its progress pattern is too slow and is not used any more", run.id)
        if seen is None:
            return None
        before = reading.track
        reading.track, ended = follow(before, seen, self._now_s(), run.epochs_before)
        return None if ended is None else self._timed(reading, before, ended)

    def _timed(self, reading: _Reading, track: Track, ended: EpochsDone) -> EpochsDone:
        """An epoch whose beginning was read long after it happened has no time."""
        return ended if track.began_s > reading.timed_from_s else replace(ended, epoch_s=0.0)

    def _events(self, record: JobRecord, run: Run, done: Sequence[EpochsDone]) -> list[Event]:
        return [
            EpochEnded(
                run=run.id,
                at_s=self._now_s(),
                epoch=ended.epoch,
                count=ended.count,
                epoch_s=ended.epoch_s,
                samples_per_s=ended.samples_per_s,
                gpus=run.allocation.gpus,
                nodes=len(run.allocation.parts),
                gpu_type=run.allocation.gpu_type,
                batch_size=record.spec.batch_size,
                metrics=ended.metrics,
            )
            for ended in done
            if ended.epoch > record.epochs_done  # told before, by the daemon that was here then
        ]


def _silent(record: JobRecord) -> bool:
    running = record.state in (JobState.RUNNING, JobState.STOPPING)
    return running and not record.uses_library and record.run is not None and record.run.began_s is None
