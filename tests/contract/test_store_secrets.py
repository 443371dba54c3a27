"""Values of secrets: apart from what happened, back after a restart, and gone from the files with their job."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contract.test_store_sql import query
from lives import ended, planned, short_life, submitted
from swell.core import events as ev
from swell.core.events import Event
from swell.core.lifecycle import replay
from swell.store.open import open_store
from swell.store.schema import SCHEMA_STEPS, VERSION_TABLE

VALUE = "hunter2-hunter2"
START = submitted(1, env={"TOKEN": VALUE, "PLAIN": "x"}, secrets=("TOKEN",))
REMOVED = ev.JobRemoved(job=1, by="ann", at_s=1_700_000_100.0)
LIFE: list[Event] = [START, planned(1), ended(1)]


def everything(url: str, table: str) -> bytes:
    return repr(query(url, f"SELECT * FROM {table}")).encode()


def test_they_are_in_no_event_record_or_checkpoint_and_back_after_a_restart(sql_url: str) -> None:
    with closing(open_store(sql_url)) as store:
        store.append(1, LIFE[:2])
        store.checkpoint(store.load())
        for table in ("events", "jobs", "runs", "checkpoints"):
            assert VALUE.encode() not in everything(sql_url, table)
        [first, *_] = store.events()
        assert VALUE not in repr(first)
        assert VALUE.encode() not in repr(codec_parts(sql_url)).encode()
    with closing(open_store(sql_url)) as store:
        assert store.load() == replay(LIFE[:2])
        assert store.load().jobs[1].spec.env == {"TOKEN": VALUE, "PLAIN": "x"}
        record = store.job(1)
        assert record is not None
        assert record.spec.env["TOKEN"] == VALUE


def codec_parts(url: str) -> list[bytes]:
    import zlib

    return [zlib.decompress(bytes(body)) for (body,) in query(url, "SELECT body FROM checkpoints")]


def test_they_go_with_their_job_and_only_theirs(sql_url: str) -> None:
    other = submitted(2, env={"TOKEN": "another-secret"}, secrets=("TOKEN",))
    with closing(open_store(sql_url)) as store:
        store.append(1, [*LIFE, other])
        store.append(5, [REMOVED])
        assert query(sql_url, "SELECT job, name FROM secrets") == [(2, "TOKEN")]
    with closing(open_store(sql_url)) as store:
        assert store.load() == replay([*LIFE, other, REMOVED])


def test_no_byte_of_them_is_left_in_the_files_of_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "swell.db"
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.append(1, LIFE)
        store.append(4, short_life(2))
        assert any(VALUE.encode() in one.read_bytes() for one in tmp_path.iterdir())
        store.append(9, [REMOVED])
        for one in tmp_path.iterdir():
            assert VALUE.encode() not in one.read_bytes(), one.name


def old_database(path: Path, events: list[Event]) -> None:
    """As version 3 wrote it: secrets in events and records."""
    from swell.store.rows import job_row

    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(VERSION_TABLE)
        for number, step in enumerate(SCHEMA_STEPS[:3], start=1):
            for statement in step:
                assert isinstance(statement, str)
                connection.execute(statement)
            connection.execute("INSERT INTO schema_versions VALUES (?, '')", (number,))
        for seq, event in enumerate(events, start=1):
            row: tuple[Any, ...] = (seq, event.at_s, type(event).__name__, getattr(event, "job", 1))
            body = msgspec.msgpack.encode(event)
            connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", (*row, body))
        for record in replay(events).jobs.values():
            row = (*job_row(record)[:-5], msgspec.msgpack.encode(record))
            connection.execute(f"INSERT INTO jobs VALUES ({', '.join('?' * len(row))})", row)


@pytest.mark.parametrize("removed", [False, True])
def test_a_database_of_before_is_brought_up_to_date_without_them_in_its_log(tmp_path: Path, removed: bool) -> None:
    path = tmp_path / "swell.db"
    events = [*LIFE, REMOVED] if removed else LIFE
    old_database(path, events)
    url = f"sqlite:///{path}"
    with closing(open_store(url)) as store:
        assert store.load() == replay(events)
        assert len(query(url, "SELECT * FROM secrets")) == (0 if removed else 1)
        assert VALUE.encode() not in everything(url, "events") + everything(url, "jobs")
    if removed:
        assert VALUE.encode() not in path.read_bytes()
    with closing(open_store(url)) as store:
        store.append(len(events) + 1, short_life(2))
        assert store.load() == replay([*events, *short_life(2)])
