"""The checksum chain of the log: each row carries a hash of itself and of the row before it.

A row that was changed, swapped, added or deleted breaks the chain from there on. It detects accidents (a faulty disk, a
wrong statement in a SQL shell), not an attacker who can write to the database.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from typing import Any

START = bytes(16)
"""What the first event follows."""
_HEAD = struct.Struct(">qdq")


def link(before: bytes, seq: int, at_s: float, kind: str, job: int | None, body: bytes) -> bytes:
    head = _HEAD.pack(seq, at_s, -1 if job is None else job)
    return hashlib.blake2b(b"".join((before, head, kind.encode(), b"\0", body)), digest_size=len(START)).digest()


def linked(before: bytes, rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """The rows (seq, at_s, kind, job, body), each with its link."""
    found = []
    for row in rows:
        before = link(before, *row)
        found.append((*row, before))
    return found
