"""Progress of jobs without the library, from what they print: follows their logs and reports epochs or steps.

It reads only the log of rank 0 of running jobs that do not report through the library, a bounded piece at a time. A
job's own patterns are matched by a process beside the daemon, and disabled if they are slow: no log and no pattern can
block the daemon.

The time of a line is the modification time of the log. Lines that are read together all get that time, which is wrong
by at most the interval between two reads.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from swell.core.errors import SwellError
from swell.core.events import EpochEnded, Event
from swell.core.ids import RunId
from swell.core.progress import read_line, seen_of
from swell.core.progress_track import Report, Track, finish, follow, marked, report
from swell.core.state import JobRecord, JobState, Run, State
from swell.core.staying import files_seen
from swell.daemon.patterns import Groups, Patterns, Unusable
from swell.ports import LogChunk

log = logging.getLogger(__name__)

EVERY_S = 1.0
REPORT_EVERY_S = 30.0
"""Maximum pause between two reports of one run; the first come at once, then the pause grows."""
BUDGET_S = 0.1
"""Maximum time for matching per round. Jobs that were left out come first in the next round."""
PIECE = 64 * 1024
LAST_PIECES = 16
LATE_S = 5.0
"""A run older than this at its first read began before this daemon: the times of its earlier lines are unknown."""

_WORTH_A_LOOK = re.compile(rb"(?i)epoch|step|iter|%\||loss|acc|speed|throughput|f1|auc|perplexity|mae|mse|entropy")

ReadLog = Callable[[RunId, int, int, int], Awaitable[LogChunk]]
Commit = Callable[[Sequence[Event]], Awaitable[None]]


@dataclass(slots=True)
class _Reading:
    """How far one run's log has been read."""

    patterns: tuple[str, ...]
    timed_from_s: float
    track: Track
    offset: int = 0
    rest: bytes = b""
    looked_s: float = 0.0
    report_at_s: float = 0.0
    pause_s: float = EVERY_S  # between two reports
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # the end of the run may come while a piece is read


class LogWatch:
    def __init__(self, state: Callable[[], State], read: ReadLog, commit: Commit, now_s: Callable[[], float]) -> None:
        self._state, self._read, self._commit, self._now_s = state, read, commit, now_s
        self._readings: dict[RunId, _Reading] = {}
        self._patterns = Patterns()
        self._spent_s = 0.0
        self._first = 0

    async def run(self) -> None:
        """Until cancelled. A log that cannot be read (machine away, disk full) is retried in the next round."""
        try:
            while True:
                await asyncio.sleep(EVERY_S)
                await self._watch()
        finally:
            await self.stop()

    async def _watch(self) -> None:
        watched = [record for job in list(self._state().active) if _silent(record := self._state().jobs[job])]
        await self._round(watched)
        current = {record.run.id for record in watched if record.run is not None}
        self._readings = {run: reading for run, reading in self._readings.items() if run in current}
        if not any(reading.patterns for reading in self._readings.values()):
            await self.stop()

    async def stop(self) -> None:
        """Ends the process that matches patterns. The next request starts another."""
        await self._patterns.stop()

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

    async def ended(self, run: RunId, *, well: bool) -> None:
        """Reads the rest of the log and reports it before the end of the run is recorded."""
        record = self._state().jobs.get(run.job)
        if record is None or record.run is None or record.run.id != run or not _silent(record):
            return
        try:
            for _ in range(LAST_PIECES):
                if not await self._look(record):
                    break
            reading = self._readings.pop(run, None)
            if reading is not None:
                unended = reading.rest.decode(errors="replace")
                await self._follow(reading, run, [unended], reading.looked_s)
                last = finish(reading.track, self._now_s()) if well else report(reading.track)
                await self._commit(self._events(run, reading, last))
        except (SwellError, OSError) as error:
            log.debug("end of the log of job %s: %s", record.id, error)

    async def _look(self, record: JobRecord) -> bool:
        """Read one piece. True if there may be more."""
        run = record.run
        assert run is not None  # `_silent`
        reading = self._readings.get(run.id)
        if reading is None:
            reading = self._readings[run.id] = self._open(record, run)
        async with reading.turn:
            chunk = await self._read(run.id, 0, reading.offset, PIECE)
            began_s = time.perf_counter()
            await self._take(reading, run.id, chunk)
            self._spent_s += time.perf_counter() - began_s
            await self._report(record, reading, reading.looked_s)
        return bool(chunk.data)

    async def _take(self, reading: _Reading, run: RunId, chunk: LogChunk) -> None:
        data = reading.rest + chunk.data
        *raw, rest = data.replace(b"\r", b"\n").split(b"\n")
        if not reading.patterns and _WORTH_A_LOOK.search(data) is None:
            raw = []
        lines = [line.decode(errors="replace") for line in raw]
        now_s = self._now_s()
        at_s = max(reading.looked_s, now_s - chunk.age_s)
        await self._follow(reading, run, lines, at_s)
        reading.offset, reading.rest, reading.looked_s = chunk.next_offset, rest[-PIECE:], now_s

    async def _follow(self, reading: _Reading, run: RunId, lines: Sequence[str], at_s: float) -> None:
        for line, groups in zip(lines, await self._own(reading, run, lines), strict=True):
            seen = seen_of(groups) if groups is not None else read_line(line)
            if seen is not None:
                reading.track = follow(reading.track, seen, at_s)

    async def _own(self, reading: _Reading, run: RunId, lines: Sequence[str]) -> Sequence[Groups | None]:
        """What the job's own patterns find in each line."""
        nothing: list[Groups | None] = [None] * len(lines)
        if not (reading.patterns and lines):
            return nothing
        try:
            return await self._patterns.find(reading.patterns, lines)
        except Unusable as error:
            reading.patterns = ()
            log.warning("run %s: its progress pattern is not used any more: %s", run, error)
            return nothing

    async def _report(self, record: JobRecord, reading: _Reading, now_s: float) -> None:
        """Commit one event for all new progress once the pause is over, or at once if a stop waits for the end of an
        epoch."""
        found, waits = report(reading.track), record.state is JobState.STOPPING and self._saves_each_epoch(record)
        if found is None or (now_s < reading.report_at_s and not waits):
            return
        assert record.run is not None  # `_silent`
        reading.report_at_s = now_s + reading.pause_s
        reading.pause_s = min(REPORT_EVERY_S, 2.0 * reading.pause_s)
        events = self._events(record.run.id, reading, found)
        reading.track = marked(reading.track)
        await self._commit(events)

    def _open(self, record: JobRecord, run: Run) -> _Reading:
        now_s = self._now_s()
        late = run.started_s is not None and now_s - run.started_s > LATE_S
        unit = "epoch" if record.unit == "epoch" else "step"
        total = record.epochs_total if record.unit in ("epoch", "step") else 0
        track = Track(unit=unit, before=run.epochs_before, total=total, given=record.spec.epochs)
        return _Reading(
            patterns=record.spec.progress_patterns,
            timed_from_s=now_s if late else 0.0,
            track=track,
            looked_s=run.started_s or now_s,
        )

    def _events(self, run: RunId, reading: _Reading, found: Report | None) -> list[Event]:
        record = self._state().jobs[run.job]
        if found is None or record.run is None or record.unit not in ("epoch", "step"):
            return []
        if found.done < record.epochs_done or (found.count and found.done == record.epochs_done):
            return []  # reported before: by an attempt that came further, or by an earlier daemon
        allocation = record.run.allocation
        timed = reading.track.reported_s > reading.timed_from_s  # else the first lines were read long after their time
        return [
            EpochEnded(
                run=run,
                at_s=self._now_s(),
                epoch=found.done,
                epochs=found.total,
                count=found.count,
                epoch_s=found.unit_s if timed else 0.0,
                samples_per_s=found.samples_per_s,
                gpus=allocation.gpus,
                nodes=len(allocation.parts),
                gpu_type=allocation.gpu_type,
                batch_size=record.spec.batch_size,
                metrics=found.metrics,
                unsaved=0 if self._saves_each_epoch(record) else max(0, found.done - record.epochs_saved),
            )
        ]

    def _saves_each_epoch(self, record: JobRecord) -> bool:
        """Whether the end of an epoch counts as a checkpoint. A line of the log proves none, so it does only if the
        daemon cannot see the files."""
        if record.unit != "epoch" or not record.spec.checkpoint_dir or record.run is None:
            return False
        nodes = self._state().nodes
        return not all(name in nodes and files_seen(record, nodes[name]) for name in record.run.allocation.nodes)


def _silent(record: JobRecord) -> bool:
    running = record.state in (JobState.RUNNING, JobState.STOPPING)
    return running and not record.uses_library and record.run is not None and record.run.began_s is None
