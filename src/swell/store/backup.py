"""Copies of a database: made while a daemon writes to it, verified before they count, and put in place again.

A copy is one SQLite file, whatever database it was made of; so it can be restored into either. It has all tables, the
values of secrets among them. Logs, checkpoints of trainings and working files are not in the database nor in the copy.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from swell.core.database_mark import APPLICATION_ID, SQLITE_MAGIC
from swell.core.errors import StoreDamaged, StoreError
from swell.store.check import check, connection_to
from swell.store.dialect import Connection, Database
from swell.store.replaying import tip_of
from swell.store.schema import VERSION
from swell.store.sql import SqlStore
from swell.store.sqlite import SqliteDatabase, sync_directory
from swell.store.tables import NAMES, PAGE, copy_table, make_tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What a copy holds."""

    events: int  # the number of the last one
    jobs: int
    bytes: int


def back_up(database: Database, path: Path) -> Copied:
    """A copy of the database as it is at one moment. `path` must not exist; it appears when the copy is verified."""
    if path.exists():
        raise StoreError(f"{path} is there already and is not written over; name another file")
    with _scratch(path.parent) as directory:
        new = directory / "copy.db"
        _copy_out(database, new)
        copied = verified(new)
        os.link(new, path)  # unlike a rename, it never replaces a file that came in between
    sync_directory(path.parent)
    return copied


def restore(path: Path, database: Database) -> tuple[Copied, str]:
    """Put a copy in place of the database, which is moved aside if it is a file (and a sentence says where), and must
    have no tables of ours if it is on a server. Raises StoreError, and changes nothing, if a daemon uses the database
    or the copy is not whole."""
    if not path.is_file():
        raise StoreError(f"there is no file {path}")
    with path.open("rb") as file:
        if file.read(len(SQLITE_MAGIC)) != SQLITE_MAGIC:
            raise StoreError(f"{path} is no copy that `swell backup` made; nothing was changed")
    with _scratch(path.parent) as directory:
        new = directory / "copy.db"
        shutil.copyfile(path, new)
        SqlStore(SqliteDatabase(new, "swell restore"), "swell restore").close()  # brings an older copy up to date
        copied = verified(new)
        with closing(database):
            return copied, database.replace_by(new)


def verified(path: Path) -> Copied:
    """Look at every row, replay the log, and compare the tables with what comes out. Raises StoreDamaged."""
    damages = check(SqliteDatabase(path, "swell backup"))
    if damages:
        raise StoreDamaged(f"the copy {path} is not whole: " + "; ".join(damage.found for damage in damages))
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        tip = tip_of(lambda sql, values: connection.execute(sql, values).fetchall(), str(path))
        jobs = connection.execute("SELECT count(*) FROM jobs").fetchone()[0]
    return Copied(events=tip.state.seq, jobs=jobs, bytes=path.stat().st_size)


@contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    """On the disk of the copy, for its owner only; gone afterwards, whatever happened."""
    try:
        directory = Path(tempfile.mkdtemp(prefix=".swell-backup-", dir=parent))
    except OSError as error:
        raise StoreError(f"nothing can be written in {parent}: {error.strerror}") from error
    try:
        yield directory
    except OSError as error:
        raise StoreError(f"{parent}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _copy_out(database: Database, new: Path) -> None:
    os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    try:
        with ExitStack() as stack:
            stack.callback(database.close)
            source = connection_to(database, stack)
            if source is None:
                raise StoreError(f"{database.where} is empty: there is nothing to copy yet")
            target = stack.enter_context(closing(sqlite3.connect(new, isolation_level=None)))
            if isinstance(source, sqlite3.Connection):
                source.backup(target)
            else:
                _copy_rows(database, source, target)
            target.execute("PRAGMA journal_mode = DELETE").fetchone()  # one file, without a log beside it
    except Exception as error:
        explained = None if isinstance(error, StoreError) else database.explain(error)
        raise explained or error from error
    with new.open("rb") as file:
        os.fsync(file.fileno())


def _copy_rows(database: Database, source: Connection, target: sqlite3.Connection) -> None:
    """All tables as of one moment."""
    cursor = source.cursor()
    cursor.execute(database.dialect.begin_reading)
    cursor.execute("SELECT max(version) FROM schema_versions")
    if (version := cursor.fetchone()[0]) != VERSION:
        raise StoreError(
            f"the tables of {database.where} have version {version}, this Swell knows {VERSION}; start the daemon once"
        )
    target.execute("BEGIN")
    make_tables(target.cursor())
    target.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    for (table,) in target.execute(NAMES).fetchall():
        copy_table(cursor, target.cursor(), table, fetch=f"FETCH {PAGE} FROM copied")
    target.execute("COMMIT")
    cursor.execute("COMMIT")
