"""Steps of the schema that SQL alone cannot do. Each runs once, in the transaction of its step."""

from __future__ import annotations

from collections.abc import Callable

from swell.core.ids import JobId
from swell.store import chain, codec, rows, secrets
from swell.store.dialect import Cursor

Sql = Callable[[str], str]
PAGE = 5_000


def seal_log(cursor: Cursor, sql: Sql) -> None:
    """Moves secrets out of the log and the records into their table, and links the rows of the log. Checkpoints hold
    secrets too and are made anew; jobs that were removed have no more secrets to keep."""
    cursor.execute("SELECT id FROM jobs")
    kept = {job for (job,) in cursor.fetchall()}
    seq, link = 0, chain.START
    while rows := _page(cursor, sql, seq):
        concealed = [_concealed(cursor, sql, row, kept) for row in rows]
        linked = chain.linked(link, concealed)
        update = sql("UPDATE events SET body = ?, chain = ? WHERE seq = ?")
        cursor.executemany(update, [(row[4], row[5], row[0]) for row in linked])
        seq, link = linked[-1][0], linked[-1][5]
    _conceal_records(cursor, sql)
    cursor.execute("DELETE FROM checkpoints")


def _page(cursor: Cursor, sql: Sql, after: int) -> list[tuple[int, float, str, int | None, bytes]]:
    select = "SELECT seq, at_s, kind, job, body FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
    cursor.execute(sql(select), (after, PAGE))
    return [(seq, at_s, kind, job, bytes(body)) for seq, at_s, kind, job, body in cursor.fetchall()]


def _concealed(
    cursor: Cursor, sql: Sql, row: tuple[int, float, str, int | None, bytes], kept: set[JobId]
) -> tuple[int, float, str, int | None, bytes]:
    seq, at_s, kind, job, body = row
    if kind != "JobSubmitted":
        return row
    event = codec.decode(kind, body)
    if job in kept and (values := secrets.rows_of([event])):
        cursor.executemany(sql("INSERT INTO secrets VALUES (?, ?, ?)"), values)
    return seq, at_s, kind, job, codec.encode(event)


def fill_plain_columns(cursor: Cursor, sql: Sql) -> None:
    """Fill the new columns of existing jobs; later jobs have them from the start."""
    last = 0
    while True:
        cursor.execute(sql("SELECT id, record FROM jobs WHERE id > ? ORDER BY id LIMIT ?"), (last, PAGE))
        found = [(job, codec.decode_record(bytes(body))) for job, body in cursor.fetchall()]
        if not found:
            return
        update = sql("UPDATE jobs SET command = ?, image = ?, metrics = ? WHERE id = ?")
        cursor.executemany(update, [(*rows.plain_columns(record), job) for job, record in found])
        last = found[-1][0]


def _conceal_records(cursor: Cursor, sql: Sql) -> None:
    cursor.execute("SELECT DISTINCT job FROM secrets")
    for (job,) in cursor.fetchall():
        cursor.execute(sql("SELECT record FROM jobs WHERE id = ?"), (job,))
        record = codec.decode_record(bytes(cursor.fetchone()[0]))
        cursor.execute(sql("UPDATE jobs SET record = ? WHERE id = ?"), (codec.encode(record), job))
