"""Is this file, with the write-ahead log beside it, a whole SQLite database? Reads headers only, and writes nothing.

SQLite itself takes a file of a few bytes for a new database, and pages that were cut off for pages of zeros. Formats:
https://www.sqlite.org/fileformat2.html
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from swell.core.database_mark import SQLITE_MAGIC
from swell.core.errors import StoreDamaged

_HEADER = struct.Struct(">16sH6xII60xI4x")  # magic, page size (1: 65536), change counter, pages, counter at that time
_WAL_HEADER = struct.Struct(">IIIIIIII")  # magic, version, page size, checkpoint number, two salts, two checksums
_FRAME = struct.Struct(">IIIIII")  # page, pages after this commit (0: not a commit), two salts, two checksums
_WAL_MAGIC = (0x377F0682, 0x377F0683)


def check_file(path: Path, where: str, remedy: str) -> None:
    """Raises StoreDamaged if it cannot be a database, or if pages of it are neither in the file nor in the log."""
    size = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
    if size < _HEADER.size:
        raise StoreDamaged(f"{where} is damaged: it has only {size} bytes. {remedy}")
    magic, page_size, changes, pages, counted_at = _HEADER.unpack(header)
    if magic != SQLITE_MAGIC:
        raise StoreDamaged(f"{where} is not a database: something else is in that file. {remedy}")
    page_size = 65536 if page_size == 1 else page_size
    if page_size < 512 or page_size & (page_size - 1):
        raise StoreDamaged(f"{where} is damaged: its header cannot be. {remedy}")
    logged, last = _logged(Path(f"{path}-wal"), page_size)
    needed = last or (pages if changes == counted_at else size // page_size)
    missing = [page for page in range(size // page_size + 1, needed + 1) if page not in logged]
    if missing or (size % page_size and not logged):
        raise StoreDamaged(f"{where} is damaged: it has been cut short, and its end is not in its log. {remedy}")


def _logged(wal: Path, page_size: int) -> tuple[set[int], int]:
    """Pages in the write-ahead log up to its last commit, and how many the database has after that; 0 if unknown."""
    pages: set[int] = set()
    pending: set[int] = set()
    last = 0
    for page, after_commit in _frames(wal, page_size):
        pending.add(page)
        if after_commit:
            pages, pending, last = pages | pending, set(), after_commit
    return pages, last


def _frames(wal: Path, page_size: int) -> Iterator[tuple[int, int]]:
    if not wal.exists():
        return
    with wal.open("rb") as file:
        header = file.read(_WAL_HEADER.size)
        if len(header) < _WAL_HEADER.size:
            return
        magic, _, wal_page_size, _, *salts, _, _ = _WAL_HEADER.unpack(header)
        if magic not in _WAL_MAGIC or wal_page_size != page_size:
            return
        while len(frame := file.read(_FRAME.size)) == _FRAME.size:
            page, after_commit, *frame_salts, _, _ = _FRAME.unpack(frame)
            if frame_salts != salts or len(file.read(page_size)) < page_size:
                return
            yield page, after_commit
