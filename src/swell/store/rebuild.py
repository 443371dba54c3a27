"""Makes the tables for reading anew from the log: `swell doctor --rebuild`, with no daemon running."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from swell.core.errors import StoreDamaged
from swell.core.state import State
from swell.store import chain, codec, replaying
from swell.store.projection import Changes, project
from swell.store.replaying import PAGE, Read, log_start
from swell.store.schema import SCHEMA_STEPS

VIEWS = {"job_history": "jobs"}
"""Views, each with the table that it reads."""
TABLES = ("jobs", "runs", "nodes", "gpus", "migrations")
HISTORY = ("jobs", "runs", "migrations")


def statements(*, whole: bool) -> Iterator[str]:
    """Drop the tables and make them again, with their indexes and the view through which they are read. Not `whole`:
    of the tables with history, which a log that was compacted does not have any more, only the indexes."""
    for table in HISTORY if not whole else ():
        yield f"REINDEX {table}"
    anew = TABLES if whole else tuple(table for table in TABLES if table not in HISTORY)
    for view, table in VIEWS.items():
        if table in anew:
            yield f"DROP VIEW {view}"
    for table in anew:
        yield f"DROP TABLE {table}"
    for step in SCHEMA_STEPS:
        for statement in step:
            if isinstance(statement, str) and _of_tables(statement, anew):
                yield statement


def _of_tables(statement: str, tables: Sequence[str]) -> bool:
    if statement.startswith("ALTER TABLE"):
        return statement.split()[2] in tables
    if statement.startswith("CREATE VIEW"):
        return VIEWS[statement.split()[2]] in tables
    return statement.startswith("CREATE") and any(f" {table} (" in statement for table in tables)


def changes(read: Read, where: str) -> Iterator[Changes]:
    """All that the log has made of the tables, a page of events at a time; first what a checkpoint has of a log
    that was compacted. Raises StoreDamaged if a row is bad."""
    state, link = State(), chain.START
    if log_start(read)[0] > 0:
        state, link = _earliest(read, where)
        yield _all_of(state)
    while page := read(replaying.ROWS, (state.seq, PAGE)):
        link = replaying.verified(page, state.seq, link, where)
        yield project(state, [codec.decode(kind, body) for _, _, kind, _, body, _ in page])
    if (tip := replaying.tip_of(read, where)).state.seq != state.seq:
        raise StoreDamaged(
            f"{where}: its log ends at event {state.seq}, its checkpoint is of event {tip.state.seq}; the tables "
            "cannot be made anew from it and were left as they are"
        )


def _earliest(read: Read, where: str) -> tuple[State, bytes]:
    """The earliest readable checkpoint: it leaves the most events of the log for checking the later ones."""
    for (seq,) in read("SELECT DISTINCT seq FROM checkpoints ORDER BY seq", ()):
        with suppress(StoreDamaged):
            tip = replaying.checkpoint(read, seq)
            return tip.state, tip.chain
    raise StoreDamaged(f"{where}: no checkpoint can be read; the tables were left as they are")


def _all_of(state: State) -> Changes:
    runs = {job.run.id: job.run for job in state.jobs.values() if job.run is not None}
    return Changes(jobs=dict(state.jobs), runs=runs, nodes=dict(state.nodes))
