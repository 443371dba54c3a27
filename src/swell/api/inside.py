"""Routes of the in-job library. Plain Starlette and msgspec: every rank of every run calls them, all the time."""

from __future__ import annotations

import asyncio
import math
import os
import re
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
from starlette.background import BackgroundTask
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from swell.api.deps import context_of, engine_of, json_response, run_of
from swell.api.problems import ApiError
from swell.daemon.reports import RankStatus, RunReport
from swell.jobfile.files import write_archive

MAX_WAIT_S = 60.0
_decoder = msgspec.json.Decoder(RunReport)
_LONG_NUMBER = re.compile(rb"\d{19}")
"""Only a body with such a thing can hold a number that no database takes: reports are many, and looked through once."""


class LeaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`boot_s`: the asker's own clock, seconds since its machine was booted."""

    node: Annotated[str, msgspec.Meta(max_length=253)]
    boot_s: Annotated[float, msgspec.Meta(ge=0)]


_lease_decoder = msgspec.json.Decoder(LeaseRequest)


async def report(request: Request) -> Response:
    run = run_of(request.path_params["run"])
    raw = await request.body()
    try:
        body = _decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(
            400, "Not a report", f"{error}; the fields of a report are listed in the OpenAPI page"
        ) from error
    if _LONG_NUMBER.search(raw) and not _is_storable(msgspec.to_builtins(body)):
        raise ApiError(422, "Not a report", "a whole number in it needs more than 64 bits: none that is measured does")
    return json_response(await engine_of(request).report(run, body))


def _is_storable(value: object) -> bool:
    if isinstance(value, dict):
        return all(_is_storable(item) for item in value.values())
    if isinstance(value, list | tuple):
        return all(_is_storable(item) for item in value)
    return not isinstance(value, int) or -(2**63) <= value < 2**63


async def lease(request: Request) -> Response:
    """How long the workers of a pod may go on without asking again."""
    run = run_of(request.path_params["run"])
    try:
        body = _lease_decoder.decode(await request.body())
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, "Not a request for a lease", f"{error}; send the node and its clock as boot_s") from error
    view = await engine_of(request).renew_lease(run, body.node, body.boot_s)
    if view is None:
        raise ApiError(410, "Over", f"run {run} is no current attempt on {body.node}: what is left of it has to end")
    return json_response(view)


async def stop(request: Request) -> Response:
    """Long poll: answers at once when there is news, else after wait_s."""
    run = run_of(request.path_params["run"])
    query = request.query_params
    position = (_whole(query, "epoch"), _whole(query, "step"))
    ack = (_whole(query, "ack_epoch"), _whole(query, "ack_step"))
    status = RankStatus(
        rank=_whole(query, "rank"),
        position=position,
        ack=ack if "ack_epoch" in query else None,
        world_size=_whole(query, "world_size"),
        steps=bool(_whole(query, "steps")),
        terminating=bool(_whole(query, "terminating")),
    )
    return json_response(await engine_of(request).await_stop(run, status, _wait_s(query)))


async def files(request: Request) -> Response:
    """The submitted files of the run's job, as one tar: for a container that does not share the daemon's disk."""
    run, config = run_of(request.path_params["run"]), context_of(request).config
    record = await engine_of(request).job(run.job)
    if not record.spec.files:
        raise ApiError(404, "No files", f"job {run.job} was submitted without files")
    packed = await asyncio.to_thread(_packed, config.files_dir, record.spec.files)
    return FileResponse(packed, media_type="application/x-tar", background=BackgroundTask(packed.unlink))


def _packed(files_dir: Path, content_hash: str) -> Path:
    """The snapshot as a tar, in a file of its own that is deleted once it was sent."""
    fd, name = tempfile.mkstemp(prefix=".send-", dir=files_dir)
    with os.fdopen(fd, "wb") as file:
        write_archive(files_dir, content_hash, file)
    return Path(name)


def _whole(query: QueryParams, name: str) -> int:
    text = query.get(name, "0")
    if not text.isdecimal() or len(text) > 15:
        raise ApiError(400, "Not a number", f"{name} must be a whole number, not {text[:20]!r}")
    return int(text)


def _wait_s(query: QueryParams) -> float:
    try:
        wait_s = float(query.get("wait_s", "0"))
    except ValueError:
        wait_s = math.nan
    if not math.isfinite(wait_s):
        raise ApiError(400, "Not a number", "wait_s must be a number of seconds")
    return min(max(wait_s, 0.0), MAX_WAIT_S)
