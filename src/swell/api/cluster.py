"""Routes about the cluster: policy, events, health, the job schema, files. Nodes have a file of their own."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import Path as PathParameter
from fastapi import Query, Request
from pydantic import Field
from starlette.responses import Response

from swell import __version__
from swell.api import streams
from swell.api.deps import (
    MAX_NUMBER,
    Body,
    caller,
    context_of,
    engine_of,
    json_response,
    router_of,
)
from swell.api.problems import ApiError
from swell.core.errors import NotFound
from swell.jobfile import files
from swell.jobfile.schema import json_schema
from swell.jobfile.unpacking import MIB
from swell.placement.registry import PLACERS
from swell.policy.registry import names as policy_names

router = router_of("cluster")
ContentHash = Annotated[str, PathParameter(json_schema_extra={"pattern": "^[0-9a-f]{64}$"})]


class PolicyBody(Body):
    name: str
    placer: str = ""
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)


class ReplayBody(Body):
    after: Annotated[int, Field(ge=0, le=MAX_NUMBER, description="Number of an event, `seq` in each notice.")]


@router.get("/v1/health")
async def health(request: Request) -> Response:
    """Open to everybody: ready or not, and how many jobs in which state. A standby answers with `role` standby and the
    URL of the active daemon."""
    oidc = context_of(request).config.oidc is not None  # the log-in page offers it
    return json_response({"version": __version__, "role": "active", "oidc": oidc, **engine_of(request).health()})


@router.get("/v1/leftovers")
async def leftovers(request: Request) -> Response:
    """Files of jobs that are not in the record: those of removed jobs that could not be deleted, and why; and how many
    jobs of another database have files here, which are left alone."""
    return json_response(engine_of(request).leftovers())


@cache
def _schema() -> dict[str, Any]:
    return json_schema()


@router.get("/v1/schema/job")
async def job_schema() -> Response:
    """JSON Schema of the job file."""
    return json_response(_schema())


# -- hooks ------------------------------------------------------------------------------------------------------------


@router.get("/v1/hooks")
async def list_hooks(request: Request) -> Response:
    """Where notices go (`hooks` in config.yaml), how many were sent, and what is wrong if they are not taken."""
    hooks = request.app.state.hooks
    return json_response({"hooks": hooks.view() if hooks is not None else []})


@router.post("/v1/hooks/{name}/test")
async def test_hook(request: Request, name: str) -> Response:
    """Send a notice now, once. `trouble` says why it was not taken; empty: it was."""
    hooks = _hooks_with(request, name)
    return json_response({"name": name, "trouble": await hooks.test(name, by=caller(request))})


@router.post("/v1/hooks/{name}/replay")
async def replay_hook(request: Request, name: str, body: ReplayBody) -> Response:
    """Send the notices of the events after this one again, for a receiver that lost them. `sent`: how many were taken;
    `trouble`: why it ended before the last, empty: it did not."""
    sent, trouble = await _hooks_with(request, name).replay(name, body.after)
    return json_response({"name": name, "sent": sent, "trouble": trouble})


def _hooks_with(request: Request, name: str) -> Any:
    hooks = request.app.state.hooks
    if hooks is None or name not in hooks.deliveries:
        raise NotFound(f"there is no hook {name!r}; `hooks` in config.yaml names them")
    return hooks


# -- policy -----------------------------------------------------------------------------------------------------------


@router.get("/v1/policy")
async def get_policy(request: Request) -> Response:
    state = engine_of(request).state
    return json_response(
        {
            "name": state.policy,
            "placer": state.placer,
            "options": dict(state.policy_options),
            "policies": list(policy_names()),
            "placers": sorted(PLACERS),
        }
    )


@router.put("/v1/policy")
async def set_policy(request: Request, body: PolicyBody) -> Response:
    """From the next decision on."""
    await engine_of(request).set_policy(body.name, placer=body.placer, options=body.options, by=caller(request))
    return await get_policy(request)


# -- events -----------------------------------------------------------------------------------------------------------


@router.get("/v1/events", response_class=Response)
async def get_events(
    request: Request,
    after: Annotated[
        int | None,
        Query(
            ge=0,
            le=MAX_NUMBER,
            description="Begin behind this number. Last-Event-ID does the same. Unset: with the first that is kept.",
        ),
    ] = None,
    last: Annotated[int, Query(ge=0, le=MAX_NUMBER, description="Begin with this many past events.")] = 0,
    follow: Annotated[bool, Query(description="Go on with what happens.")] = True,
    job: Annotated[int, Query(ge=0, le=MAX_NUMBER, description="Of this job only.")] = 0,
) -> Response:
    """Everything that happens, as server-sent events numbered as in the log."""
    return streams.events(request, after=after, last=last, follow=follow, job=job)


# -- files ------------------------------------------------------------------------------------------------------------


@router.get("/v1/files/{content_hash}")
async def has_files(request: Request, content_hash: ContentHash) -> Response:
    if not files.touch(context_of(request).config.files_dir, _hash(content_hash)):
        raise NotFound(f"snapshot {content_hash[:7]} is not here; send it with PUT")
    return json_response({"hash": content_hash})


@router.put("/v1/files/{content_hash}", status_code=201)
async def put_files(request: Request, content_hash: ContentHash) -> Response:
    """A tar of the working directory, named by its SHA-256. Streamed to disk, checked, unpacked."""
    config = context_of(request).config
    config.files_dir.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(prefix=".upload-", dir=config.files_dir)
    part = Path(name)
    try:
        digest = await _receive(request, fd, limit=config.snapshot_max_mib * MIB * 11 // 10 + MIB)
        if digest != _hash(content_hash):
            raise ApiError(422, "Not these files", f"the bytes that came have the hash {digest}, not {content_hash}")
        await asyncio.to_thread(files.adopt, config.files_dir, content_hash, part, max_mib=config.snapshot_max_mib)
    finally:
        part.unlink(missing_ok=True)
    return json_response({"hash": content_hash}, status=201)


def _hash(text: str) -> str:
    if not files.is_hash(text):
        raise ApiError(422, "Not a hash", "files are named by the SHA-256 of their tar: 64 hexadecimal digits")
    return text


async def _receive(request: Request, fd: int, limit: int) -> str:
    digest = hashlib.sha256()
    size = 0
    with os.fdopen(fd, "wb") as file:
        async for data in request.stream():
            size += len(data)
            if size > limit:
                detail = f"more than {limit // MIB} MiB; raise snapshot_max_mib in the daemon's config.yaml"
                raise ApiError(413, "Too large", detail)
            digest.update(data)
            await asyncio.to_thread(file.write, data)
        await asyncio.to_thread(_sync, file.fileno())
    return digest.hexdigest()


def _sync(fd: int) -> None:
    os.fsync(fd)
