"""Checkpoint files of the library, written atomically: to a temporary file, synced, renamed. The last few are kept.

A file holds the progress together with the user's object, so the two never disagree. Files are read from the job's own
directory only. A damaged file (checked by length and checksum) is skipped for the one before it.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import struct
import sys
import zlib
from pathlib import Path
from typing import Any, NamedTuple

KEEP = 3
PROGRESS = "progress.json"
_MAGIC = b"SWELLCK1"
_HEADER = struct.Struct(">8sIQ")  # magic, checksum, length
_NAME = re.compile(r"checkpoint-(\d+)-(\d+)\.pkl")


class Checkpoint(NamedTuple):
    """`epochs_done` whole epochs, and `step` steps of the next one; `units` where tokens or samples are counted;
    `samples` used so far, where the library gives out their order; `size`: batches of a whole epoch, 0 if unknown."""

    epochs_done: int
    step: int
    value: Any
    units: int = 0
    samples: int = 0
    size: int = 0


def write_whole(path: Path, *parts: bytes) -> None:
    """Write the file atomically: after a crash the old content or the new one is there, nothing in between."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("wb") as file:
        file.writelines(parts)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def save(directory: Path, checkpoint: Checkpoint, keep: int = KEEP) -> Path:
    return write(directory, checkpoint.epochs_done, checkpoint.step, packed(checkpoint), keep)


def packed(checkpoint: Checkpoint) -> bytes:
    """From here on training may change what it holds."""
    return pickle.dumps(tuple(checkpoint), protocol=4)


def write(directory: Path, epochs_done: int, step: int, body: bytes, keep: int) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"checkpoint-{epochs_done:08d}-{step:08d}.pkl"
    write_whole(path, _HEADER.pack(_MAGIC, zlib.crc32(body), len(body)), body)
    for _, old in sorted(_found(directory))[:-keep]:
        old.unlink(missing_ok=True)
    return path


def load(directory: Path) -> Checkpoint | None:
    """The newest checkpoint that is not damaged."""
    for _, path in sorted(_found(directory), reverse=True):
        checkpoint = _read(path)
        if checkpoint is not None:
            return checkpoint
        print(f"swell: {path} is damaged; trying the checkpoint before it", file=sys.stderr)
    return None


def _found(directory: Path) -> list[tuple[tuple[int, int], Path]]:
    if not directory.is_dir():
        return []
    named = ((_NAME.fullmatch(path.name), path) for path in directory.iterdir())
    return [((int(match[1]), int(match[2])), path) for match, path in named if match]


def _read(path: Path) -> Checkpoint | None:
    data = path.read_bytes()
    if len(data) < _HEADER.size:
        return None
    magic, checksum, length = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    if magic != _MAGIC or len(body) != length or zlib.crc32(body) != checksum:
        return None
    return Checkpoint(*pickle.loads(body))  # noqa: S301  the job's own directory: what it holds, the job wrote


def write_progress(directory: Path, epochs_done: int) -> None:
    """Note how many epochs the checkpoints of the script's own code cover."""
    directory.mkdir(parents=True, exist_ok=True)
    write_whole(directory / PROGRESS, json.dumps({"epochs_done": epochs_done}).encode())


def read_progress(directory: Path) -> int:
    try:
        return int(json.loads((directory / PROGRESS).read_text())["epochs_done"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
