"""SQLite: one file, write-ahead log, every commit on disk before it is answered.

Beside `swell.db` lie `swell.db-wal` and `swell.db-shm` (SQLite's own), `swell.db.lock`, which the writer holds locked
as long as it lives and which says who it is, and `swell.db.last`, which says how far the log went.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from swell.core.database_mark import APPLICATION_ID
from swell.core.errors import StoreBusy, StoreDamaged, StoreError, StoreFull
from swell.store.dialect import Connection, Dialect
from swell.store.sqlite_file import check_file
from swell.store.watermark import Watermark

BUSY_S = 5.0
"""How long to wait for somebody who has the file locked, such as a person with a SQL shell."""

SCRUB_MS = 200
"""How long to wait for readers when the write-ahead log is emptied: others wait to write meanwhile."""

DIALECT = Dialect(
    begin="BEGIN IMMEDIATE",
    read_writer="SELECT epoch, holder FROM writer",
    tables="SELECT name FROM sqlite_master WHERE type = 'table'",
    checks=("PRAGMA integrity_check(20)",),
)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_MIN_FREE = 1 << 16
"""An input/output error with less free space than this is a full disk by another name."""


class SqliteDatabase:
    def __init__(self, path: Path, holder: str) -> None:
        self._path = path
        self._holder = holder
        self._lock_fd: int | None = None
        self._last = Watermark(Path(f"{path}.last"))

    @property
    def where(self) -> str:
        return f"the database {self._path}"

    @property
    def dialect(self) -> Dialect:
        return DIALECT

    @contextmanager
    def examine(self) -> Iterator[Connection | None]:
        """By a connection that cannot write; what SQLite makes for it is taken away again."""
        self._take_lock()
        if not self._there():
            yield None
            return
        before = {path for path in (self._wal(), self._shm()) if path.exists()}
        mode = "ro" if self._has_wal() else "ro&immutable=1"
        try:
            with closing(self._connect(mode)) as connection:
                yield connection
        finally:
            for path in {self._wal(), self._shm()} - before:
                path.unlink(missing_ok=True)

    def writer(self) -> Connection:
        self._take_lock()
        if not self._path.exists():
            self._make()
        connection = self._connect("rw")
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute(f"PRAGMA journal_size_limit = {64 << 20}")
        return connection

    def opened(self) -> None:
        """Nothing to do: a statement on a disk that hangs cannot be timed out, because the system call blocks."""

    def reader(self) -> Connection:
        return self._connect("ro")

    def _connect(self, mode: str) -> sqlite3.Connection:
        uri = f"{self._path.absolute().as_uri()}?mode={mode}"
        return sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)

    def _take_lock(self) -> None:
        if self._lock_fd is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._lock_fd = self._lock()

    def _lock(self) -> int:
        path = Path(f"{self._path}.lock")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            os.write(fd, self._holder.encode())
        except BlockingIOError:
            os.close(fd)
            other = path.read_text(encoding="utf-8", errors="replace").strip() or "another process"
            raise StoreBusy(
                f"{self.where} is in use by {other}. One daemon writes to a database; use that one, or stop it first."
            ) from None
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _there(self) -> bool:
        """False for a database that is yet to be made. Raises if the file cannot be one, or is gone."""
        if self._path.exists():
            check_file(self._path, self.where, _HELP)
            return True
        wal = self._wal()
        if wal.exists():
            raise StoreDamaged(f"{self.where} is gone, but {wal.name} beside it is still there. {_HELP}")
        if (known := self._last.read()) is not None and known[0] > 0:
            raise StoreDamaged(f"{self.where} is gone; {known[0]} events were committed to it. {self.accept}")
        return False

    def _wal(self) -> Path:
        return Path(f"{self._path}-wal")

    def _shm(self) -> Path:
        return Path(f"{self._path}-shm")

    def _has_wal(self) -> bool:
        return self._wal().exists() and self._wal().stat().st_size > 0

    def _make(self) -> None:
        """Made under another name and renamed, so that an empty file never is a new database cut short by a crash."""
        new = Path(f"{self._path}.new")
        new.unlink(missing_ok=True)
        os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(new, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")  # makes SQLite write the first page
        new.rename(self._path)
        sync_directory(self._path.parent)

    def explain(self, error: Exception) -> StoreError | None:
        if isinstance(error, OSError):
            return self._full() if error.errno in _NO_SPACE else StoreError(f"{self.where}: {error}")
        if not isinstance(error, sqlite3.Error):
            return None
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and self._free() < _MIN_FREE):
            return self._full()
        if code in _DAMAGED:
            return StoreDamaged(f"{self.where} is damaged ({error}). {_HELP}")
        if code in _BUSY:
            return StoreBusy(f"{self.where} has been locked by another program for {BUSY_S:.0f} s; close that one.")
        return StoreError(f"{self.where} failed: {error}")

    def _full(self) -> StoreFull:
        return StoreFull(
            f"no space left on the disk of {self._path}. Nothing that was acknowledged is lost and running jobs go on; "
            "free some space there and it continues by itself."
        )

    def _free(self) -> int:
        return shutil.disk_usage(self._path.parent).free

    def backup(self, connection: Connection, version: int) -> None:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        copy = Path(f"{self._path}.v{version}-{stamp}.backup")
        fd = os.open(copy, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            connection.cursor().execute("VACUUM INTO ?", (str(copy),))
            os.fsync(fd)
        finally:
            os.close(fd)
        sync_directory(copy.parent)

    def replace_by(self, copy: Path) -> str:
        """A kill in between leaves what the next start refuses by name; doing it again mends that."""
        self._take_lock()
        new, stamp = Path(f"{self._path}.new"), time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        new.unlink(missing_ok=True)
        _copy_file(copy, new)
        aside = Path(f"{self._path}.before-restore-{stamp}")
        had = self._path.exists()
        for suffix in ("", "-wal", "-shm"):
            _move(Path(f"{self._path}{suffix}"), Path(f"{aside}{suffix}"))
        new.rename(self._path)
        _move(self._last.path, Path(f"{aside}.last"))
        sync_directory(self._path.parent)
        return f"the database of before is {aside}" if had else ""

    def scrub(self, connection: Connection) -> None:
        """Freed pages are overwritten as they are freed (`secure_delete`); here the write-ahead log is emptied."""
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {SCRUB_MS}")
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        busy = cursor.fetchone()[0]
        cursor.execute(f"PRAGMA busy_timeout = {round(BUSY_S * 1000)}")
        if busy:
            raise StoreBusy(f"{self.where} is being read")

    def remember(self, seq: int, chain: bytes) -> None:
        self._last.write(seq, chain)

    def remembered(self) -> tuple[int, bytes] | None:
        return self._last.read()

    @property
    def accept(self) -> str:
        return (
            f"Nothing in it was changed. Bring the newer files back; or, to go on without the events that are missing, "
            f"delete {self._last.path}."
        )

    def close(self) -> None:
        self._last.close()
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None


_HELP = (
    "Nothing in it was changed. Restore it from a copy (a .backup file may lie beside it), "
    "or move it away, with its -wal file, to start anew."
)


def _copy_file(source: Path, target: Path) -> None:
    with os.fdopen(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as file:
        with source.open("rb") as read:
            shutil.copyfileobj(read, file)
        file.flush()
        os.fsync(file.fileno())


def _move(path: Path, aside: Path) -> None:
    if path.exists():
        path.rename(aside)


def sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
