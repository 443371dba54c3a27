"""Makes our tables, and copies rows from one database to another."""

from __future__ import annotations

from collections.abc import Callable

from swell.store.dialect import Cursor
from swell.store.schema import SCHEMA_STEPS, VERSION_TABLE

PAGE = 1000
NAMES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
"""Of the tables of a SQLite database."""


def make_tables(cursor: Cursor, sql: Callable[[str], str] = str) -> None:
    """Empty ones of the current version. Steps that are functions only change what earlier versions wrote."""
    cursor.execute(sql(VERSION_TABLE))
    for statement in (one for step in SCHEMA_STEPS for one in step):
        if isinstance(statement, str):
            cursor.execute(sql(statement))


def copy_table(source: Cursor, target: Cursor, table: str, *, mark: str = "?", fetch: str = "") -> None:
    """All rows, in place of those that making the tables has put there. `fetch`: a statement that gives the next ones,
    for a database whose client would else hold the whole table in memory."""
    target.execute(f"DELETE FROM {table}")  # noqa: S608 - names of our own tables, here and below
    source.execute(f"DECLARE copied CURSOR FOR SELECT * FROM {table}" if fetch else f"SELECT * FROM {table}")  # noqa: S608
    insert = ""
    while rows := _next(source, fetch):
        names = [column[0] for column in source.description]
        insert = insert or f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join([mark] * len(names))})"  # noqa: S608
        target.executemany(insert, rows)
    if fetch:
        source.execute("CLOSE copied")


def _next(source: Cursor, fetch: str) -> list[tuple[object, ...]]:
    if not fetch:
        return list(source.fetchmany(PAGE))
    source.execute(fetch)
    return list(source.fetchall())
