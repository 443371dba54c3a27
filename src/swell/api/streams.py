"""Server-sent events: what happens in the cluster, and what a job prints. Both resume where the reader left off.

A log stream never ends with success before its job has ended: it follows the job from run to run, and its last message
is `end`, with the state and the exit code. A stream that just breaks off has not ended; the reader comes again with the
last id it saw. Ids of log messages are `attempt:offset`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse

from swell.api.deps import context_of, line_of
from swell.api.port import Engine
from swell.api.problems import ApiError
from swell.api.views import event_view
from swell.core.errors import NotFound
from swell.core.ids import JobId, RunId
from swell.core.state import JobRecord
from swell.ports import LogChunk, Stored

KEEP_ALIVE_S = 15.0
CHUNK = 64 * 1024
POLL_MIN_S = 0.05
POLL_MAX_S = 0.5
_COMMENT = b": still here\n\n"


def message(event: str, data: object, ident: str = "") -> bytes:
    head = f"id: {ident}\n" if ident else ""
    return f"{head}event: {event}\n".encode() + b"data: " + msgspec.json.encode(data) + b"\n\n"


def sse(content: AsyncIterator[bytes]) -> StreamingResponse:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(content, media_type="text/event-stream", headers=headers)


# -- events -----------------------------------------------------------------------------------------------------------


def events(request: Request, *, after: int, last: int, follow: bool, job: JobId) -> StreamingResponse:
    engine = context_of(request).engine
    resumed = request.headers.get("last-event-id", "")
    if resumed.isdecimal():
        after = int(resumed)
    elif last:
        after = max(after, engine.state.seq - last)
    return sse(_events(engine, after, None if follow else engine.state.seq, job))


async def _events(engine: Engine, after: int, until: int | None, job: JobId) -> AsyncIterator[bytes]:
    if until is not None and after >= until:
        return
    async for stored in _with_pauses(engine.subscribe(after)):
        if stored is None:
            yield _COMMENT
            continue
        view = event_view(stored)
        if not job or view.get("job") == job:
            yield message(view["type"], view, str(stored.seq))
        if until is not None and stored.seq >= until:
            return


async def _with_pauses(source: AsyncIterator[Stored]) -> AsyncIterator[Stored | None]:
    """The same, with a None whenever nothing came for a while. The pending item is kept, never cancelled half-way."""
    pending: asyncio.Task[Stored] | None = None
    try:
        while True:
            pending = pending or asyncio.ensure_future(_next(source))
            done, _ = await asyncio.wait({pending}, timeout=KEEP_ALIVE_S)
            if not done:
                yield None
                continue
            item, pending = pending, None
            try:
                yield item.result()
            except StopAsyncIteration:
                return
    finally:
        if pending is not None:
            pending.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                await pending
        close = getattr(source, "aclose", None)
        if close is not None:
            await close()


async def _next(source: AsyncIterator[Stored]) -> Stored:
    return await source.__anext__()


# -- logs -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Place:
    """Where a reader of a job's log is."""

    attempt: int
    offset: int

    def __str__(self) -> str:
        return f"{self.attempt}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Place | None:
        attempt, colon, offset = text.partition(":")
        if not (colon and attempt.isdecimal() and offset.isdecimal()):
            return None
        return cls(int(attempt), int(offset))


async def logs(
    request: Request, record: JobRecord, place: Place, *, follow: bool, rank: int, only: int, limit: int
) -> StreamingResponse:
    """Followed: server-sent events until the job has ended. Else the bytes that are there."""
    context = context_of(request)
    if follow:
        resumed = Place.parse(request.headers.get("last-event-id", ""))
        return sse(_follow(context.engine, record.id, rank, resumed or place))
    if place.offset and not only:
        raise ApiError(422, "Which attempt?", "offset counts within one attempt; add attempt=1")
    content = _raw(context.engine, record.id, rank, place, last=only or record.attempts, limit=limit)
    return StreamingResponse(content, media_type="application/octet-stream")


async def _raw(engine: Engine, job: JobId, rank: int, place: Place, *, last: int, limit: int) -> AsyncIterator[bytes]:
    """Chunk by chunk: memory stays flat whatever the size of the log."""
    left = limit or None
    while place.attempt <= last and left != 0:
        chunk = await _chunk(engine, job, rank, place, min(CHUNK, left or CHUNK))
        if not chunk.data:
            place = Place(place.attempt + 1, 0)
            continue
        yield chunk.data
        place = Place(place.attempt, chunk.next_offset)
        left = None if left is None else left - len(chunk.data)


async def _chunk(engine: Engine, job: JobId, rank: int, place: Place, limit: int = CHUNK) -> LogChunk:
    try:
        return await engine.log(RunId(job, place.attempt), rank, place.offset, limit)
    except NotFound:  # not started yet, or its log was removed
        return LogChunk(data=b"", offset=place.offset, next_offset=place.offset, end=False)


async def _follow(engine: Engine, job: JobId, rank: int, place: Place) -> AsyncIterator[bytes]:
    try:
        async for part in _until_ended(engine, job, rank, place):
            yield part
    except NotFound as error:
        gone = {"id": job, "state": "removed", "exit_reason": None, "exit_code": None, "message": str(error)}
        yield message("end", gone)


async def _until_ended(engine: Engine, job: JobId, rank: int, place: Place) -> AsyncIterator[bytes]:
    shown, pause_s, quiet_s = "", POLL_MIN_S, 0.0
    while True:
        record = await engine.job(job)  # before the chunk: what was printed before the end is then in it
        status = _status(engine, record)
        if (key := f"{status['state']} {status['run']} {status['gpus']}") != shown:
            shown = key
            yield message("state", status)
        chunk = await _chunk(engine, job, rank, place)
        text, place = _text(chunk, place, final=_over(record, place))
        if text:
            yield message("log", {"run": f"{job}.{place.attempt}", "rank": rank, "text": text}, str(place))
            pause_s, quiet_s = POLL_MIN_S, 0.0
            continue
        if place.attempt < record.attempts:
            place = Place(place.attempt + 1, 0)
            continue
        if record.ended:
            yield message("end", _end(record), str(place))
            return
        await asyncio.sleep(pause_s)
        quiet_s += pause_s
        pause_s = min(2 * pause_s, POLL_MAX_S)
        if quiet_s >= KEEP_ALIVE_S:
            quiet_s = 0.0
            yield _COMMENT


def _over(record: JobRecord, place: Place) -> bool:
    """Nothing more will be added to the log at this place."""
    return record.ended or place.attempt < record.attempts


def _text(chunk: LogChunk, place: Place, *, final: bool) -> tuple[str, Place]:
    """Whole characters only; the bytes of a half one wait for the next chunk, unless there will be none."""
    data = chunk.data
    kept = data if final and len(data) < CHUNK else data[: len(data) - _half_character(data)]
    return kept.decode(errors="replace"), Place(place.attempt, chunk.offset + len(kept))


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
