"""How a file that is a database of Swell is recognised, its backups included: it holds the values of secrets. `store`
marks what it makes; `jobfile.choosing` leaves it out of snapshots. Standard library only."""

from __future__ import annotations

from pathlib import Path

APPLICATION_ID = 0x5377656C
"""“Swel”, in the header of the SQLite file."""
_MAGIC = b"SQLite format 3\0"
_ID_AT = 68
_PAGE_BYTES = 512
"""The least that SQLite writes, and what the size of each of its files is a multiple of."""


def is_database(path: Path) -> bool:
    try:
        size = path.stat().st_size
        if not size or size % _PAGE_BYTES:
            return False
        with path.open("rb") as file:
            head = file.read(_ID_AT + 4)
    except OSError:
        return False
    return head.startswith(_MAGIC) and int.from_bytes(head[_ID_AT:], "big") == APPLICATION_ID
