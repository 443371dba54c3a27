"""What a job prints: the bytes that are there, or a stream that follows the job to its end.

A stream never ends with success before its job has ended: it follows the job from run to run, and its last message is
`end`, with the state and the exit code. A stream that just breaks off has not ended; the reader comes again with the
last id it saw. Ids are `attempt:offset`, with as many offsets (joined by commas) as processes are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from swell.api.deps import bounded, line_of
from swell.api.port import Engine
from swell.api.streams import COMMENT, KEEP_ALIVE_S, message
from swell.core.errors import NotFound
from swell.core.ids import JobId, RunId
from swell.core.state import JobRecord, Run
from swell.executors.launchers import Site, processes
from swell.ports import LogChunk

CHUNK = 64 * 1024
POLL_MIN_S = 0.05
POLL_MAX_S = 0.5


@dataclass(frozen=True, slots=True)
class Place:
    """Where a reader of a job's log is: in which attempt, and how far in the log of each process it reads."""

    attempt: int
    offsets: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.attempt}:{','.join(map(str, self.offsets))}"

    @classmethod
    def parse(cls, text: str) -> Place | None:
        attempt, _, offsets = text.partition(":")
        first, *rest = [bounded(part) for part in (attempt, *offsets.split(","))]
        known = [offset for offset in rest if offset is not None]
        return cls(first, tuple(known)) if first is not None and len(known) == len(rest) else None

    def offset(self, index: int) -> int:
        return self.offsets[index] if index < len(self.offsets) else 0

    def at(self, index: int, offset: int) -> Place:
        known = [*self.offsets, *[0] * (index + 1 - len(self.offsets))]
        known[index] = offset
        return Place(self.attempt, tuple(known))

    def next_attempt(self) -> Place:
        return Place(self.attempt + 1)


async def place_near_end(engine: Engine, record: JobRecord, rank: int | None, back: int, attempt: int) -> Place:
    """The last bytes of what each process of that attempt has printed; `attempt` 0: of the latest one."""
    place = Place(attempt or max(1, record.attempts))
    run = RunId(record.id, place.attempt)
    for index, number in enumerate(await _ranks(engine, record, rank, place.attempt)):
        place = place.at(index, max(0, await _size(engine, run, number) - back))
    return place


async def place_since(engine: Engine, record: JobRecord, rank: int | None, since_s: float, attempt: int) -> Place:
    """Where begins what was written since: in the first attempt that had not ended by then; the next one, if none.
    `attempt` 0: of all of them."""
    runs = {run.id.attempt: run for run in await _known(engine, record)}
    wanted = [attempt] if attempt else sorted(runs)
    for number in wanted:
        if number in runs and ((ended_s := runs[number].ended_s) is None or ended_s >= since_s):
            place = Place(number)
            ranks = range(_processes(record, runs[number])) if rank is None else (rank,)
            for index, one in enumerate(ranks):
                place = place.at(index, await engine.log_since(runs[number].id, one, since_s))
            return place
    return Place(max(attempt, record.attempts) + 1)


async def _known(engine: Engine, record: JobRecord) -> Sequence[Run]:
    """Its attempts; the present one as it is now."""
    past = {run.id: run for run in await engine.runs(record.id)}
    return list({**past, record.run.id: record.run}.values()) if record.run else list(past.values())


async def check_rank(engine: Engine, record: JobRecord, rank: int, attempt: int, *, follow: bool) -> None:
    """Raises NotFound if the job has had no such process (in that attempt; 0: in any), nor, where it is followed, may
    still get one."""
    runs = [run for run in await _known(engine, record) if attempt in (0, run.id.attempt)]
    sizes = [_processes(record, run) for run in runs]
    if follow and not record.ended:
        servers = record.spec.roles.servers if record.spec.roles else 0
        sizes.append(max(1, record.spec.gpus.max) + servers)
    if sizes and rank >= (most := max(sizes)):
        whose = f"attempt {attempt} of job {record.id}" if attempt else f"job {record.id}"
        ranks = "rank 0 only" if most == 1 else f"ranks 0 to {most - 1}"
        raise NotFound(f"{whose} has no process of rank {rank}; it has {ranks}")


async def _size(engine: Engine, run: RunId, rank: int) -> int:
    """By doubling and halving: an executor is asked for bytes, not for sizes."""
    low, high = 0, CHUNK
    while (await _chunk(engine, run, rank, high, 1)).data:
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if (await _chunk(engine, run, rank, middle, 1)).data else (low, middle)
    return low


async def raw(engine: Engine, job: JobId, rank: int, place: Place, *, last: int, limit: int) -> AsyncIterator[bytes]:
    """One process, attempt after attempt. Chunk by chunk: memory stays flat whatever the size of the log."""
    left = limit or None
    while place.attempt <= last and left != 0:
        chunk = await _chunk(engine, RunId(job, place.attempt), rank, place.offset(0), min(CHUNK, left or CHUNK))
        if not chunk.data:
            place = place.next_attempt()
            continue
        yield chunk.data
        place = place.at(0, chunk.next_offset)
        left = None if left is None else left - len(chunk.data)


async def _chunk(engine: Engine, run: RunId, rank: int, offset: int, limit: int = CHUNK) -> LogChunk:
    try:
        return await engine.log(run, rank, offset, limit)
    except NotFound:  # not started yet, or its log was removed
        return LogChunk(data=b"", offset=offset, next_offset=offset, end=False)


async def follow(engine: Engine, job: JobId, rank: int | None, place: Place) -> AsyncIterator[bytes]:
    """Server-sent events to the end of the job. `rank` None: all of them."""
    try:
        async for part in _until_ended(engine, job, rank, place):
            yield part
    except NotFound as error:
        gone = {"id": job, "state": "removed", "exit_reason": None, "exit_code": None, "message": str(error)}
        yield message("end", gone)


async def _until_ended(engine: Engine, job: JobId, rank: int | None, place: Place) -> AsyncIterator[bytes]:
    shown, pause_s, quiet_s = "", POLL_MIN_S, 0.0
    while True:
        record = await engine.job(job)  # before the logs: what was printed before the end is then in them
        status = _status(engine, record)
        if (key := f"{status['state']} {status['run']} {status['gpus']}") != shown:
            shown = key
            yield message("state", status)
        before = place
        for index, number in enumerate(await _ranks(engine, record, rank, place.attempt)):
            offset = place.offset(index)
            text, place = await _read(engine, record, place, index, number)
            if text:
                data = {"run": f"{job}.{place.attempt}", "rank": number, "offset": offset, "text": text}
                yield message("log", data, str(place))
        if place != before:
            pause_s, quiet_s = POLL_MIN_S, 0.0
        elif place.attempt < record.attempts:
            place = place.next_attempt()
        elif record.ended:
            yield message("end", _end(record), str(place))
            return
        else:
            await asyncio.sleep(pause_s)
            quiet_s += pause_s
            pause_s = min(2 * pause_s, POLL_MAX_S)
            if quiet_s >= KEEP_ALIVE_S:
                quiet_s = 0.0
                yield COMMENT


async def _ranks(engine: Engine, record: JobRecord, rank: int | None, attempt: int) -> Sequence[int]:
    """Whose logs are read in that attempt: attempts differ in size."""
    if rank is not None:
        return (rank,)
    runs = [record.run] if record.run and record.run.id.attempt == attempt else await engine.runs(record.id)
    return next((range(_processes(record, run)) for run in runs if run.id.attempt == attempt), ())


def _processes(record: JobRecord, run: Run) -> int:
    parts = len(run.allocation.parts)
    site = Site(allocation=run.allocation, addresses=("",) * parts, port=1, discovery_path="")
    return len(processes(record.spec, site))


async def _read(engine: Engine, record: JobRecord, place: Place, index: int, rank: int) -> tuple[str, Place]:
    """Whole characters only; the bytes of a half one wait for the next time, unless there will be none."""
    chunk = await _chunk(engine, RunId(record.id, place.attempt), rank, place.offset(index))
    over = record.ended or place.attempt < record.attempts
    data = chunk.data
    kept = data if over and len(data) < CHUNK else data[: len(data) - _half_character(data)]
    if not kept:
        return "", place
    return kept.decode(errors="replace"), place.at(index, chunk.offset + len(kept))


def _half_character(data: bytes) -> int:
    """How many bytes at the end begin a UTF-8 character that is not complete."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        needs = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return back if needs > back else 0
    return 0


def _status(engine: Engine, record: JobRecord) -> dict[str, Any]:
    line = line_of(engine, record)
    return {key: line[key] for key in ("id", "name", "state", "run", "gpus", "where", "why", "files")}


def _end(record: JobRecord) -> dict[str, Any]:
    run = record.run
    return {
        "id": record.id,
        "state": record.state,
        "exit_reason": run.exit_reason if run else None,
        "exit_code": run.exit_code if run else None,
        "message": record.message,
    }
