"""Files of a job: where they are, how much of the disk they use, which there are, and what is in them."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response, StreamingResponse

from swell.api.deps import MAX_NUMBER, context_of, engine_of, json_response, record_of, router_of
from swell.api.port import Engine
from swell.config import Config
from swell.core.containers import outside
from swell.core.errors import Insufficient, NotFound
from swell.core.state import JobRecord
from swell.jobfile.files import unpacked_path
from swell.jobfile.outputs import disk_use, unchanged
from swell.ports import JobFile, JobTree, Order, Piece

PIECE = 1024 * 1024
router = router_of("jobs")
_NO_SUCH_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.EISDIR, errno.ENAMETOOLONG})


@router.get("/v1/jobs/{job}/files")
async def get_files(request: Request, job: str) -> Response:
    """Where its files are on the daemon's machine (working copy, checkpoints, logs), and how much of the disk they use;
    `submitted` is the snapshot that the working copy began as. `machine`: where its latest attempt ran, if elsewhere;
    then `tree` and `content` give what it wrote."""
    record, config = await record_of(request, job), context_of(request).config
    view = await asyncio.to_thread(files_view, record, config)
    return json_response({**view, "machine": await _elsewhere(engine_of(request), record)})


@router.get("/v1/jobs/{job}/tree")
async def get_tree(request: Request, job: str) -> Response:
    """Plain files in its working directory, on the machine where its latest attempt ran (the first of several).
    `submitted`: it was submitted like that. Links are left out. `whole` is false if there are more than 100,000."""
    record, config = await record_of(request, job), context_of(request).config
    order = await _order(engine_of(request), record)
    tree = await _tree(engine_of(request), order)
    return json_response(await asyncio.to_thread(_tree_view, order, tree, config))


@router.get("/v1/jobs/{job}/content", response_class=Response)
async def get_content(
    request: Request,
    job: str,
    path: Annotated[str, Query(max_length=4096, description="As `tree` says it.")],
    offset: Annotated[int, Query(ge=0, le=MAX_NUMBER, description="Byte to begin with.")] = 0,
) -> Response:
    """One of these files, to its end as it is now. A body that breaks off can be asked for again from there."""
    engine, record = engine_of(request), await record_of(request, job)
    order = await _order(engine, record)
    first = await _piece(engine, order, path, offset)
    length = max(0, first.size - offset)
    headers = {"Content-Length": str(length)}
    body = _pieces(engine, order, path, offset, first)
    return StreamingResponse(body, media_type="application/octet-stream", headers=headers)


async def _order(engine: Engine, record: JobRecord) -> Order:
    order = await engine.latest_order(record.id)
    if record.spec.workdir.startswith("/"):
        where = f"{outside(record.spec, record.spec.workdir)} on {next(iter(order.nodes))}"
        raise NotFound(f"job {record.id} ran in {where} itself: what it wrote is there")
    return order


async def _elsewhere(engine: Engine, record: JobRecord) -> str:
    try:
        order = await engine.latest_order(record.id)
    except NotFound:
        return ""
    first = next(iter(order.nodes.values()))
    return "" if first.executor == "local" else first.name


async def _tree(engine: Engine, order: Order) -> JobTree:
    try:
        return await engine.files.tree(order)
    except OSError as error:
        raise _refusal(order, "", error) from error


async def _piece(engine: Engine, order: Order, path: str, offset: int, limit: int = PIECE) -> Piece:
    try:
        return await engine.files.content(order, path, offset, limit)
    except OSError as error:
        raise _refusal(order, path, error) from error


def _refusal(order: Order, path: str, error: OSError) -> Exception:
    node, job = next(iter(order.nodes)), order.record.id
    if error.errno not in _NO_SUCH_FILE:
        return Insufficient(f"the files of job {job} on {node} cannot be read now: {error}")
    if not path:
        return NotFound(f"job {job} has no files on {node}: it has not started yet, or they were removed")
    return NotFound(f"job {job} has no plain file {path[:200]!r} on {node}; links are not followed")


async def _pieces(engine: Engine, order: Order, path: str, offset: int, first: Piece) -> AsyncIterator[bytes]:
    """As many bytes as were announced. A file that was replaced or cut meanwhile ends the body early, which its reader
    sees."""
    piece, end = first, first.size
    while offset < end and piece.inode == first.inode and piece.data:
        data = piece.data[: end - offset]
        yield data
        offset += len(data)
        if offset < end:
            piece = await _piece(engine, order, path, offset)


def _tree_view(order: Order, tree: JobTree, config: Config) -> dict[str, Any]:
    record, node = order.record, next(iter(order.nodes.values()))
    snapshot = unpacked_path(config.files_dir, record.spec.files) / record.spec.workdir if record.spec.files else None
    here = config.work_dir / str(record.id) / record.spec.workdir if node.executor == "local" else None
    return {
        "job": record.id,
        "machine": node.name,
        "files": [_file_view(file, snapshot, here) for file in tree.files],
        "skipped": tree.skipped,
        "whole": tree.whole,
    }


def _file_view(file: JobFile, snapshot: Path | None, here: Path | None) -> dict[str, Any]:
    as_submitted = snapshot is not None and unchanged(file.path, file.size, file.mtime_ns, snapshot, here)
    return {
        "path": file.path,
        "size": file.size,
        "modified_ns": str(file.mtime_ns),  # more digits than numbers of JSON have in a browser
        "mode": file.mode,
        "submitted": as_submitted,
    }


def files_view(record: JobRecord, config: Config) -> dict[str, Any]:
    """Reads the disk: called in a thread."""
    own = config.work_dir / str(record.id)
    logs = [config.runs_dir / f"{record.id}.{attempt}" for attempt in range(1, record.attempts + 1)]
    return {
        "job": record.id,
        "directory": outside(record.spec, str(own / record.spec.workdir)),
        "submitted": str(unpacked_path(config.files_dir, record.spec.files)) if record.spec.files else "",
        "snapshot": _snapshot(config, record.spec.files),
        "working_copy": _use(own),
        "checkpoints": _use(config.checkpoints_dir / str(record.id)),
        "logs": {"path": str(config.runs_dir), "bytes": sum(disk_use(path).bytes for path in logs)},
    }


def _snapshot(config: Config, content_hash: str) -> dict[str, Any]:
    """`own_bytes`: of content that no other snapshot has. Its other name is in the store of contents."""
    if not content_hash:
        return {"files": 0, "bytes": 0, "own_bytes": 0}
    path = unpacked_path(config.files_dir, content_hash)
    found = disk_use(path)
    return {"files": found.files, "bytes": found.bytes, "own_bytes": disk_use(path, links=2).bytes}


def _use(path: Path) -> dict[str, Any]:
    found = disk_use(path)
    return {"path": str(path), "files": found.files, "bytes": found.bytes}
