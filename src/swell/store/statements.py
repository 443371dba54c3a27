"""The SQL of the store, written for SQLite (see dialect)."""

from __future__ import annotations

from typing import Any

from swell.ports import JobQuery
from swell.store import rows
from swell.store.projection import states_of


def jobs_page(query: JobQuery) -> tuple[str, list[Any]]:
    states = states_of(query)
    values: list[Any] = list(states)
    sql = f"SELECT id, record, reported FROM jobs WHERE state IN ({', '.join('?' * len(states))})"  # noqa: S608 - only marks
    since = rows.when(query.ended_since_s) if query.ended_since_s else None
    wanted = ("owner = ?", query.user), ("batch = ?", query.batch), ("id < ?", query.after)
    for column, value in (*wanted, ("(ended_at IS NULL OR ended_at >= ?)", since)):
        if value:
            sql += f" AND {column}"
            values.append(value)
    return f"{sql} ORDER BY id DESC LIMIT ?", [*values, query.limit]


def _upsert(table: str, columns: str, keys: int) -> str:
    names = columns.split()
    marks = ", ".join("?" * len(names))
    update = ", ".join(f"{name} = excluded.{name}" for name in names[keys:])
    return (
        f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})"  # noqa: S608 - our own names
        f" ON CONFLICT ({', '.join(names[:keys])}) DO UPDATE SET {update}"
    )


UPSERTS = {
    "events": "INSERT INTO events (seq, at_s, kind, job, body, chain) VALUES (?, ?, ?, ?, ?, ?)",
    "secrets": "INSERT INTO secrets (job, name, value) VALUES (?, ?, ?)",
    "jobs": _upsert("jobs", rows.JOB_COLUMNS, 1),
    "reported": "UPDATE jobs SET epochs_done = ?, epochs_total = ?, reported = ?, metrics = ? WHERE id = ?",
    "runs": _upsert("runs", rows.RUN_COLUMNS, 2),
    "nodes": _upsert("nodes", rows.NODE_COLUMNS, 1),
    "gpus": _upsert("gpus", rows.GPU_COLUMNS, 2),
    "migrations": _upsert("migrations", rows.MOVE_COLUMNS, 1),
}
EVENTS = "SELECT seq, kind, body FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
ENDED_OF_STATE = "SELECT id, ended_at FROM jobs WHERE state = ? ORDER BY id LIMIT ?"
CONSUMED_SINCE = (
    "SELECT owner, team, state, count(*), sum(ran_s), sum(gpu_s) FROM jobs WHERE ended_at >= ?"
    " GROUP BY owner, team, state ORDER BY owner, team, state"
)
RUNS = (
    "SELECT runs.record, runs.attempt = jobs.attempts, jobs.reported FROM runs JOIN jobs ON jobs.id = runs.job"
    " WHERE runs.job = ? ORDER BY runs.attempt"
)
RUNS_BETWEEN = (
    "SELECT runs.record, runs.attempt = jobs.attempts, jobs.reported, jobs.name, jobs.owner FROM runs"
    " JOIN jobs ON jobs.id = runs.job"
    " WHERE (runs.ended_at IS NULL OR runs.ended_at >= ?) AND runs.planned_at < ?"
    " ORDER BY runs.planned_at DESC, runs.job, runs.attempt LIMIT ?"
)
PLANS_AND_RESIZES = (
    "SELECT seq, kind, body FROM allocations WHERE job = ? UNION ALL SELECT seq, kind, body FROM events"
    " WHERE job = ? AND kind IN ('RunPlanned', 'RunResized') ORDER BY 1"
)
REMOVE_JOB = (
    "DELETE FROM jobs WHERE id = ?",
    "DELETE FROM runs WHERE job = ?",
    "DELETE FROM migrations WHERE job = ?",
    "DELETE FROM allocations WHERE job = ?",
    "DELETE FROM secrets WHERE job = ?",  # last: its count is asked for
)
FORGET_CHECKPOINTS = (
    "DELETE FROM checkpoints WHERE seq NOT IN (SELECT DISTINCT seq FROM checkpoints ORDER BY seq DESC LIMIT ?)"
)
FORGET_BOOKS = "DELETE FROM books WHERE seq NOT IN (SELECT seq FROM books ORDER BY seq DESC LIMIT ?)"
