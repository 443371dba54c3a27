"""Routes about the cluster: nodes, policy, events, health, the job schema, files."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Path as PathParameter
from fastapi import Query, Request
from pydantic import AfterValidator, Field
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
from swell.api.views import node_views
from swell.core.errors import Conflict, NotFound
from swell.core.resources import Gpu, Node, NodeCondition
from swell.jobfile import files
from swell.jobfile.expand import NAME_PATTERN, NAME_RULE, is_name
from swell.jobfile.schema import Size, json_schema
from swell.jobfile.unpacking import MIB
from swell.placement.registry import PLACERS
from swell.policy.registry import names as policy_names

router = router_of("cluster")
MAX_NODE_GPUS = 1024
ContentHash = Annotated[str, PathParameter(json_schema_extra={"pattern": "^[0-9a-f]{64}$"})]


def _node_name(name: str) -> str:
    if "@" in name:
        raise ValueError("machines over SSH are not known to this version; leave out user@")
    if not is_name(name):
        raise ValueError(f"{name[:120]!r} is not a name Swell can use; {NAME_RULE}")
    return name


class NodeBody(Body):
    """A machine and what it has. Its processes run on the daemon's own machine: slots to try things with."""

    name: Annotated[
        str,
        AfterValidator(_node_name),
        Field(description=NAME_RULE, json_schema_extra={"pattern": f"^{NAME_PATTERN}$"}),
    ]
    gpus: Annotated[int, Field(ge=0, le=MAX_NODE_GPUS)] = 0
    gpu_type: str = "gpu"
    gpu_memory: Size = 0
    cpus: Annotated[int, Field(ge=1, le=4096)] = 1
    memory: Size = 1024
    labels: dict[str, str] = Field(default_factory=dict)
    rack: str = ""
    address: str = "127.0.0.1"
    executor: Literal["local"] = "local"

    def node(self) -> Node:
        gpus = tuple(Gpu(index=i, type=self.gpu_type, memory_mib=self.gpu_memory) for i in range(self.gpus))
        return Node(
            name=self.name,
            gpus=gpus,
            cpus=self.cpus,
            memory_mib=self.memory,
            labels=self.labels,
            rack=self.rack,
            address=self.address,
            executor=self.executor,
        )


class PolicyBody(Body):
    name: str
    placer: str = ""
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)


class SlotsBody(Body):
    gpus: int | None = Field(ge=0, le=1024)


class NodeWhy(Body):
    why: str = Field(default="", max_length=500)


@router.get("/v1/health")
async def health(request: Request) -> Response:
    """Open to everybody: ready or not, and how many jobs in which state."""
    return json_response({"version": __version__, **engine_of(request).health()})


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


# -- nodes ------------------------------------------------------------------------------------------------------------


@router.get("/v1/nodes")
async def list_nodes(request: Request) -> Response:
    return json_response({"nodes": node_views(engine_of(request).state, engine_of(request).now_s())})


@router.post("/v1/nodes", status_code=201)
async def add_node(request: Request, body: NodeBody) -> Response:
    engine = engine_of(request)
    if body.name in engine.state.nodes:
        raise Conflict(f"there is a node {body.name} already; remove it first (`swell node remove {body.name}`)")
    await engine.add_node(body.node())
    return _node(request, body.name, 201)


@router.post("/v1/slots")
async def declare_slots(request: Request, body: SlotsBody) -> Response:
    """So many slots on the daemon's own machine instead of the GPUs that it finds (null: those). More are there at
    once, fewer as they come free; later starts have the same number."""
    await engine_of(request).declare_slots(body.gpus)
    return await list_nodes(request)


_CONDITIONS = {
    "cordon": NodeCondition.CORDONED,
    "uncordon": NodeCondition.READY,
    "drain": NodeCondition.DRAINING,
}


@router.post("/v1/nodes/{node}/{action}")
async def change_node(
    request: Request, node: str, action: Literal["cordon", "uncordon", "drain"], body: NodeWhy | None = None
) -> Response:
    """cordon: nothing new. drain: also checkpoint and move away what runs. uncordon: back to normal."""
    why = body.why if body else ""
    await engine_of(request).set_node_condition(node, _CONDITIONS[action], why=why, by=caller(request))
    return _node(request, node)


@router.delete("/v1/nodes/{node}")
async def remove_node(request: Request, node: str) -> Response:
    await engine_of(request).remove_node(node, by=caller(request))
    return json_response({"name": node})


def _node(request: Request, name: str, status: int = 200) -> Response:
    for view in node_views(engine_of(request).state, engine_of(request).now_s()):
        if view["name"] == name:
            return json_response(view, status)
    raise NotFound(f"there is no node {name!r}; `swell nodes` lists them")


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
        int, Query(ge=0, le=MAX_NUMBER, description="Begin behind this number. Last-Event-ID does the same.")
    ] = 0,
    last: Annotated[int, Query(ge=0, le=MAX_NUMBER, description="Begin with the last so many.")] = 0,
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
