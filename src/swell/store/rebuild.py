"""Makes the tables for reading anew from the log: `swell doctor --rebuild`, with no daemon running."""

from __future__ import annotations

from collections.abc import Iterator

from swell.core.errors import StoreDamaged
from swell.core.state import State
from swell.store import chain, codec, replaying
from swell.store.projection import Changes, project
from swell.store.replaying import PAGE, Read
from swell.store.schema import SCHEMA_STEPS

TABLES = ("jobs", "runs", "nodes", "gpus", "migrations")


def statements() -> Iterator[str]:
    """Drop the tables and make them again, with their indexes."""
    for table in TABLES:
        yield f"DROP TABLE {table}"
    for step in SCHEMA_STEPS:
        for statement in step:
            if isinstance(statement, str) and statement.startswith("CREATE") and _of_tables(statement):
                yield statement


def _of_tables(statement: str) -> bool:
    return any(f" {table} (" in statement for table in TABLES)


def changes(read: Read, where: str) -> Iterator[Changes]:
    """All that the log has made of the tables, a page of events at a time. Raises StoreDamaged if a row is bad."""
    state, link = State(), chain.START
    while page := read(replaying.ROWS, (state.seq, PAGE)):
        link = replaying.verified(page, state.seq, link, where)
        yield project(state, [codec.decode(kind, body) for _, _, kind, _, body, _ in page])
    if (tip := replaying.tip_of(read, where)).state.seq != state.seq:
        raise StoreDamaged(
            f"{where}: its log ends at event {state.seq}, its checkpoint is of event {tip.state.seq}; the tables "
            "cannot be made anew from it and were left as they are"
        )
