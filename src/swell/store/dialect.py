"""What a SQL database must offer to hold a store, and how its SQL differs from SQLite's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from swell.core.errors import StoreError


class Cursor(Protocol):
    @property
    def rowcount(self) -> int: ...
    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Any: ...
    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Any: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def fetchmany(self, size: int = ..., /) -> list[Any]: ...
    @property
    def description(self) -> Any: ...


class Connection(Protocol):
    """The common part of DB-API connections in autocommit mode; transactions are begun and ended in SQL."""

    def cursor(self) -> Cursor: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """SQL is written in this package for SQLite; this says what another database calls it."""

    begin: str  # a transaction that will write
    read_writer: str  # epoch and holder, which nobody else may change before we commit
    tables: str  # names of the tables there are
    begin_reading: str = "BEGIN"  # a transaction that sees one moment
    checks: tuple[str, ...] = ()  # statements whose rows say "ok", or what is wrong with the database's own structures
    reindex: str = "REINDEX"
    mark: str = "?"
    types: Mapping[str, str] = field(default_factory=dict)  # of columns

    def sql(self, text: str) -> str:
        """The statement as this database wants it."""
        if text.startswith(("CREATE TABLE", "ALTER TABLE")):
            for ours, theirs in self.types.items():
                text = text.replace(f" {ours}", f" {theirs}")
        if text.startswith("REINDEX "):
            text = text.replace("REINDEX", self.reindex)
        return text if self.mark == "?" else text.replace("?", self.mark)


class Database(Protocol):
    """What differs between databases."""

    @property
    def where(self) -> str:
        """Its name for people, without passwords."""
        ...

    @property
    def dialect(self) -> Dialect: ...

    def examine(self) -> AbstractContextManager[Connection | None]:
        """Take the writer's lock (or raise StoreBusy) and look at what is there without changing any of it; None if
        there is nothing yet. A caller that refuses the database leaves it unchanged."""
        ...

    def writer(self) -> Connection:
        """Connect to write, with the writer's lock (or raise StoreBusy)."""
        ...

    def opened(self) -> None:
        """The tables are up to date: from now on every statement is quick, and a slow one counts as failed."""
        ...

    def reader(self) -> Connection: ...
    def explain(self, error: Exception) -> StoreError | None:
        """A driver's error in our words; None for what is not the database's fault."""
        ...

    def backup(self, connection: Connection, version: int) -> None:
        """Copy what is there before its tables are changed."""
        ...

    def replace_by(self, copy: Path) -> str:
        """Put a copy (a SQLite file, whole and of the current version) in this database's place, with the writer's lock
        or StoreBusy. What was there is not lost: a file is moved aside, and a sentence says where; else StoreError."""
        ...

    def scrub(self, connection: Connection) -> None:
        """Erase what deleted rows left behind, as far as the database lets us. May raise; may be left undone."""
        ...

    def remember(self, seq: int, chain: bytes) -> None:
        """Note outside of the database how far its log goes. Called after every commit; must be cheap, never raises."""
        ...

    def remembered(self) -> tuple[int, bytes] | None:
        """What was noted last, never more than was committed. None if nothing is known."""
        ...

    @property
    def accept(self) -> str:
        """What to do about a log that is shorter than what `remembered` knows."""
        ...

    def close(self) -> None:
        """Give the writer's lock back."""
        ...
