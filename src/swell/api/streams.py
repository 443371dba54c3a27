"""Server-sent events: how they are written, and what happens in the cluster as a stream that can be resumed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse

from swell.api.deps import bounded, caller_of, context_of, may_read_job
from swell.api.port import Engine
from swell.api.problems import ApiError
from swell.api.views import event_view, public_event
from swell.core.account_events import AccountEvent
from swell.core.accounts import Caller, Role
from swell.core.events import job_of
from swell.core.ids import JobId
from swell.ports import Stored

KEEP_ALIVE_S = 15.0
COMMENT = b": still here\n\n"


def message(event: str, data: object, ident: str = "") -> bytes:
    head = f"id: {ident}\n" if ident else ""
    return f"{head}event: {event}\n".encode() + b"data: " + msgspec.json.encode(data) + b"\n\n"


def sse(content: AsyncIterator[bytes]) -> StreamingResponse:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(content, media_type="text/event-stream", headers=headers)


def events(request: Request, *, after: int | None, last: int, follow: bool, job: JobId) -> StreamingResponse:
    engine = context_of(request).engine
    resumed = bounded(request.headers.get("last-event-id", ""))
    if resumed is not None:
        after = resumed
    elif last:
        after = max(after or 0, engine.first_seq - 1, engine.state.seq - last)
    begin = engine.first_seq - 1 if after is None else after
    if begin < engine.first_seq - 1:
        raise ApiError(410, "No longer kept", _no_longer_kept(begin, engine.first_seq - 1))
    return sse(_events(engine, caller_of(request), begin, None if follow else engine.state.seq, job))


def _no_longer_kept(asked: int, removed: int) -> str:
    return (
        f"events {asked + 1} to {removed} are no longer kept (setting events_keep_days); what became of jobs is. "
        f"Begin behind event {removed} (after={removed}), or look at a job and its attempts (`swell show`)"
    )


async def _events(engine: Engine, who: Caller, after: int, until: int | None, job: JobId) -> AsyncIterator[bytes]:
    if until is not None and after >= until:
        return
    async for stored in _with_pauses(engine.subscribe(after)):
        if stored is None:
            yield COMMENT
            continue
        view = _seen_by(who, engine, stored)
        if view is not None and (not job or view.get("job") == job):
            yield message(view["type"], view, str(stored.seq))
        if until is not None and stored.seq >= until:
            return


def _seen_by(who: Caller, engine: Engine, stored: Stored) -> dict[str, Any] | None:
    """As much of an event as this caller may know. Users and tokens are for admins."""
    if isinstance(stored.event, AccountEvent) and not who.role.includes(Role.ADMIN):
        return None
    view, job = event_view(stored), job_of(stored.event)
    if job is None or may_read_job(who, engine.state.jobs.get(job)):
        return view
    return public_event(view)


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
