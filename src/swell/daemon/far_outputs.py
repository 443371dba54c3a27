"""Outputs of a job on another machine: brought into a directory here, then copied to where its user wants them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from swell.jobfile.outputs import is_inside, is_output, matches, unchanged
from swell.ports import Files, JobFile, Order

PIECE = 1024 * 1024


async def bring_outputs(files: Files, order: Order, submitted: Path | None, into: Path) -> None:
    """Fetches the files that match `outputs` and that the job wrote from its first machine. Raises OSError if that does
    not answer."""
    tree, patterns = await files.tree(order), order.record.spec.outputs
    for file in tree.files:
        named = is_inside(file.path) and is_output(file.path) and matches(file.path, patterns)
        if named and not (submitted is not None and _as_submitted(file, submitted)):
            await _bring(files, order, file, into / file.path)


def _as_submitted(file: JobFile, submitted: Path) -> bool:
    return unchanged(file.path, file.size, file.mtime_ns, submitted, None)


async def _bring(files: Files, order: Order, file: JobFile, target: Path) -> None:
    """Fetches as many bytes as the listing showed, or fewer if the file has been truncated since."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as out:
        offset = 0
        while offset < file.size:
            piece = await files.content(order, file.path, offset, min(PIECE, file.size - offset))
            if not piece.data:
                break
            await asyncio.to_thread(out.write, piece.data)
            offset += len(piece.data)
    target.chmod(file.mode & 0o777 | 0o600)
