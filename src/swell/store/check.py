"""What is wrong with a database, in sentences for `swell doctor`. Looks at every row, through a connection that cannot
write, also while a daemon uses the database. Nothing is repaired here: `rebuild` does that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from swell.core.errors import StoreBusy, StoreDamaged, StoreError
from swell.core.state import State
from swell.store import codec, replaying
from swell.store.dialect import Connection, Database
from swell.store.replaying import PAGE, Read
from swell.store.schema import VERSION

SHOWN = 5
"""Examples listed per kind of damage; the report has the total number."""
LOG_FIX = "restore the database from a copy; as long as a checkpoint after these events is good, the daemon goes on"
HISTORY_FIX = "; rows of jobs that ended before the log begins are only in a copy of the database"
TABLES_FIX = "swell down, swell doctor --rebuild, swell up: the log has what these tables show"


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    found: str
    fix: str


def check(database: Database) -> list[Damage]:
    """Empty if all is well. Raises StoreError if the database cannot be looked at."""
    try:
        with ExitStack() as stack:
            stack.callback(database.close)
            connection = connection_to(database, stack)
            return [] if connection is None else _all(database, connection)
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:  # values that nobody wrote
        return [Damage(found=f"{database.where} holds what Swell never wrote ({error!r})", fix=LOG_FIX)]
    except Exception as error:
        explained = error if isinstance(error, StoreError) else database.explain(error)
        if isinstance(explained, StoreDamaged):
            return [Damage(found=str(explained), fix=LOG_FIX)]
        raise explained or error from error


def connection_to(database: Database, stack: ExitStack) -> Connection | None:
    """One that reads only, also while a daemon uses the database; None if there is nothing yet."""
    try:
        return stack.enter_context(database.examine())
    except StoreBusy:  # a daemon uses it
        return stack.enter_context(closing(database.reader()))


def _all(database: Database, connection: Connection) -> list[Damage]:
    cursor = connection.cursor()

    def read(sql: str, values: Sequence[Any]) -> list[Any]:
        cursor.execute(database.dialect.sql(sql), values)
        return cursor.fetchall()

    known = database.remembered()  # before the moment that is looked at: a daemon writes on meanwhile
    cursor.execute(database.dialect.begin_reading)
    return [*_pages(database, read), *_contents(database, read, known)]


def _pages(database: Database, read: Read) -> Iterator[Damage]:
    for statement in database.dialect.checks:
        bad = [text for (text,) in read(statement, ()) if text != "ok"]
        if bad:
            yield Damage(found=f"{database.where}: {_some([' '.join(one.split()) for one in bad])}", fix=LOG_FIX)


def _contents(database: Database, read: Read, known: tuple[int, bytes] | None) -> Iterator[Damage]:
    version = read("SELECT max(version) FROM schema_versions", ())[0][0]
    if version != VERSION:
        yield Damage(
            found=f"its tables have version {version}, this Swell knows {VERSION}", fix="start the daemon once"
        )
        return
    yield from _log(read)
    yield from _checkpoints(read)
    try:
        tip = replaying.tip_of(read, database.where)
    except StoreDamaged as error:
        yield Damage(found=str(error), fix=LOG_FIX)
        return
    if known is not None and known[0] > tip.state.seq:
        yield Damage(found=f"the log ends at event {tip.state.seq}, but {known[0]} were committed", fix=database.accept)
    yield from _tables(read, tip.state)


def _log(read: Read) -> Iterator[Damage]:
    """Every row, also behind a bad one."""
    bad: list[str] = []
    seq, link = replaying.log_start(read)
    first = read("SELECT min(seq) FROM events", ())[0][0]
    if first is not None and first <= seq:
        bad.append(f"event {first}, which cannot be: the log begins with event {seq + 1}")
    while page := read(replaying.ROWS, (seq, PAGE)):
        for row in page:
            if row[0] != seq + 1:
                bad.append(f"events {seq + 1} to {row[0] - 1} are missing")
            elif replaying.linked(row, link) != row[5]:
                bad.append(f"event {row[0]} is not as it was written")
            seq, link = row[0], row[5] if isinstance(row[5], bytes) else b""
    if bad:
        yield Damage(found=f"the log: {_some(bad)}", fix=LOG_FIX)


def _checkpoints(read: Read) -> Iterator[Damage]:
    for (seq,) in read("SELECT DISTINCT seq FROM checkpoints ORDER BY seq", ()):
        try:
            replaying.checkpoint(read, seq)
        except StoreDamaged as error:
            fix = "none needed: the one before it or the log is used, and the next stop of the daemon makes a new one"
            yield Damage(found=f"the checkpoint at event {seq}: {error}", fix=fix)


def _tables(read: Read, state: State) -> Iterator[Damage]:
    bad = [
        *_unreadable(read, "jobs", "id, record", codec.decode_record),
        *_unreadable(read, "jobs", "id, reported", codec.decode_reported),
        *_unreadable(read, "runs", "job, record", codec.decode_run),
    ]
    shown = dict(read("SELECT id, state FROM jobs", ()))
    listed = dict(read("SELECT id, state FROM jobs WHERE state >= '' ORDER BY state, id", ()))  # by the index
    bad += [
        f"job {job} is shown as {shown.get(job)}"
        for job, record in state.jobs.items()
        if shown.get(job) != record.state
    ]
    if shown != listed:
        bad.append("jobs and their index differ")
    if bad:
        fix = TABLES_FIX if replaying.log_start(read)[0] == 0 else TABLES_FIX + HISTORY_FIX
        yield Damage(found=f"tables for reading: {_some(bad)}", fix=fix)


def _unreadable(read: Read, table: str, columns: str, decode: Callable[[bytes], object]) -> Iterator[str]:
    after, (key, value) = 0, columns.split(", ")
    rows = f"SELECT {columns} FROM {table} WHERE {key} > ? AND {value} IS NOT NULL ORDER BY {key} LIMIT ?"  # noqa: S608
    while page := read(rows, (after, PAGE)):
        for number, body in page:
            after = number
            try:
                decode(body)
            except StoreError:
                yield f"a row of job {number} in {table} cannot be read"


def _some(found: list[str]) -> str:
    more = len(found) - SHOWN
    return "; ".join(found[:SHOWN]) + (f"; and {more} more" if more > 0 else "")
