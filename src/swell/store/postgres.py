"""PostgreSQL, by psycopg 3. The writer's lock is an advisory lock of its session: it is gone when the session is."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from swell.core.errors import StoreBusy, StoreDamaged, StoreError, StoreFull
from swell.store.dialect import Connection, Dialect
from swell.store.tables import NAMES, copy_table, make_tables

if TYPE_CHECKING:
    from types import ModuleType

    from swell.store.postgres_session import Session

LOCK_KEY = 0x5377656C6C  # “Swell”
LOCK_WAIT_S = 2.0
CONNECT_S = 10
MUTE_S = 5.0
"""Readers try no new connection for this long after one failed; otherwise each of them would wait for a time-out."""

DIALECT = Dialect(
    begin="BEGIN",
    read_writer="SELECT epoch, holder FROM writer FOR UPDATE",
    tables="SELECT tablename FROM pg_tables WHERE schemaname = current_schema()",
    begin_reading="BEGIN ISOLATION LEVEL REPEATABLE READ",
    reindex="REINDEX TABLE",
    mark="%s",
    types={"INTEGER": "BIGINT", "REAL": "DOUBLE PRECISION", "BLOB": "BYTEA"},
)
_FULL = ("53100", "53400")  # disk full, configured limit
_DAMAGED = ("XX001", "XX002")


class PostgresDatabase:
    def __init__(self, url: str) -> None:
        self._url = url
        self._psycopg = _driver()
        self._examined: Session | None = None  # becomes the writer
        self._opened: Session | None = None  # the writer that it became
        self._mute: tuple[float, str] = (0.0, "")  # until when readers try no connection, and the error they raise

    @property
    def where(self) -> str:
        parts = urlsplit(self._url)
        return f"the database {parts.path.lstrip('/')} on {parts.hostname or 'the local PostgreSQL server'}"

    @property
    def dialect(self) -> Dialect:
        return DIALECT

    @contextmanager
    def examine(self) -> Iterator[Connection | None]:
        """By the connection that will write, since the lock is its session's; no file of ours is at stake."""
        self._examined = self._locked_session()
        self._examined.silence_s = None
        yield self._examined

    def writer(self) -> Connection:
        if self._examined is not None:
            self._opened, self._examined = self._examined, None
            return self._opened
        return self._locked_session()

    def opened(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.silence_s = type(opened).silence_s

    def _locked_session(self) -> Session:
        connection = self.connect()
        try:
            connection.execute("SET synchronous_commit = on")
            if not _locked(connection):
                raise StoreBusy(
                    f"{self.where} is in use by {self._holder(connection)}. "
                    "One daemon writes to a database; use that one, or stop it first."
                )
        except BaseException:
            connection.close()
            raise
        return connection

    def reader(self) -> Connection:
        until_s, said = self._mute
        if time.monotonic() < until_s:
            raise self._psycopg.OperationalError(said)
        connection = self.connect()
        connection.execute("SET default_transaction_read_only = on")
        return connection

    def connect(self) -> Session:
        """A session without the writer's lock."""
        from swell.store.postgres_session import Session

        try:
            session = Session.connect(self._url, autocommit=True, connect_timeout=CONNECT_S, application_name="swell")
        except self._psycopg.OperationalError as error:
            self._mute = time.monotonic() + MUTE_S, _line(error)
            raise
        self._mute = 0.0, ""
        return session

    def _holder(self, connection: Any) -> str:
        """The holder of the lock, which may not have written its name yet."""
        try:
            return str(connection.execute("SELECT holder FROM writer").fetchone()[0]) or "another process"
        except self._psycopg.Error:
            return "another process"

    def explain(self, error: Exception) -> StoreError | None:
        if not isinstance(error, self._psycopg.Error):
            return None
        code = error.sqlstate or ""
        if code in _FULL:
            return StoreFull(
                f"the server of {self.where} has no space left. Nothing that was acknowledged is lost and running jobs "
                "go on; free some space there and it continues by itself."
            )
        if code in _DAMAGED:
            return StoreDamaged(f"{self.where} is damaged ({_line(error)}). Restore it from a backup.")
        if isinstance(error, self._psycopg.OperationalError):
            return StoreError(f"{self.where} cannot be reached ({_line(error)}); it is tried again.")
        return StoreError(f"{self.where} failed: {_line(error)}")

    def backup(self, connection: Connection, version: int) -> None:
        """A copy of all tables in a schema of its own, made in one transaction."""
        cursor = connection.cursor()
        cursor.execute("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD\"t\"HH24MISS')")
        schema = f"swell_backup_v{version}_{cursor.fetchone()[0]}"
        cursor.execute("BEGIN")
        cursor.execute(f"CREATE SCHEMA {schema}")
        cursor.execute(DIALECT.tables)
        for table in sorted({name for (name,) in cursor.fetchall()}):
            cursor.execute(f"CREATE TABLE {schema}.{table} AS TABLE {table}")
        cursor.execute("COMMIT")

    def replace_by(self, copy: Path) -> str:
        """In one transaction."""
        with closing(self.writer()) as connection, closing(sqlite3.connect(copy)) as source:
            cursor = connection.cursor()
            cursor.execute(DIALECT.tables)
            if {name for (name,) in cursor.fetchall()} & {"events", "jobs", "schema_versions"}:
                raise StoreError(
                    f"{self.where} has tables already and they are not written over; make an empty database on the "
                    "server and name it in the setting `database`"
                )
            cursor.execute("BEGIN")
            make_tables(cursor, DIALECT.sql)
            for (table,) in source.execute(NAMES).fetchall():
                copy_table(source.cursor(), cursor, table, mark=DIALECT.mark)
            cursor.execute("COMMIT")
        return ""

    def scrub(self, connection: Connection) -> None:
        connection.cursor().execute("VACUUM secrets")

    def remember(self, seq: int, chain: bytes) -> None:
        """Nothing to do: a server keeps what it has acknowledged."""

    def remembered(self) -> tuple[int, bytes] | None:
        return None

    @property
    def accept(self) -> str:
        return "Restore the newer one from a backup."

    def close(self) -> None:
        """The lock goes with the writer's connection; one that was refused has not become the writer."""
        examined, self._examined = self._examined, None
        if examined is not None:
            with suppress(Exception):  # what is wrong with it is being reported already
                examined.close()


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _driver() -> ModuleType:
    try:
        import psycopg
    except ImportError as error:
        raise StoreError(
            "PostgreSQL needs the extra `swell[postgres]`, which is not installed: pip install 'swell[postgres]'"
        ) from error
    return psycopg


def _locked(connection: Any) -> bool:
    """A daemon that was just killed, or a store that was just closed, has its session until the server notices."""
    deadline_s = time.monotonic() + LOCK_WAIT_S
    while True:
        if connection.execute("SELECT pg_try_advisory_lock(%s)", (LOCK_KEY,)).fetchone()[0]:
            return True
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.05)
