"""Recognises databases of Swell and their backups, which hold the values of secrets. `store` marks the files it makes;
`jobfile.choosing` leaves them out of snapshots. Standard library only."""

from __future__ import annotations

from pathlib import Path

APPLICATION_ID = 0x5377656C
"""“Swel”, in the header of the SQLite file."""
SQLITE_MAGIC = b"SQLite format 3\0"
_ID_AT = 68
_PAGE_BYTES = 512
"""The smallest page of SQLite: the size of each database file is a multiple of it."""


def is_database(path: Path) -> bool:
    try:
        size = path.stat().st_size
        if not size or size % _PAGE_BYTES:
            return False
        with path.open("rb") as file:
            head = file.read(_ID_AT + 4)
    except OSError:
        return False
    return head.startswith(SQLITE_MAGIC) and int.from_bytes(head[_ID_AT:], "big") == APPLICATION_ID
