"""What lasting stores must do besides: survive a crash, keep to one writer, be readable, refuse a newer one."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lives import T0, moving_life, planned, short_life, submitted, two_nodes
from swell.core import events as ev
from swell.core.errors import StoreBusy, StoreError, StoreFenced, StoreTooNew
from swell.core.ids import RunId
from swell.core.job import GpuRequest
from swell.core.lifecycle import replay
from swell.core.resources import Gpu, GpuHealth, Node, NodeCondition
from swell.store import migrate, sql
from swell.store.open import open_store
from swell.store.schema import SCHEMA_STEPS, VERSION
from swell.store.sql import SqlStore

WRITER = """
import asyncio, sys
from lives import submitted
from swell.core.errors import StoreBusy
from swell.store.open import open_store
from swell.store.journal import Journal

async def main(url):
    journal = Journal(open_store(url))
    state = await journal.recover()
    print("ready", flush=True)
    job = state.last_job

    async def client():
        nonlocal job
        while True:
            job += 1
            print(await journal.append([submitted(job)]), flush=True)
    await asyncio.gather(*(client() for _ in range(8)))

asyncio.run(main(sys.argv[1]))
"""


def connect(url: str) -> Any:
    """As a person would, with the database's own client library."""
    if url.startswith("sqlite:///"):
        import sqlite3

        return closing(sqlite3.connect(url.removeprefix("sqlite:///")))
    import psycopg

    return psycopg.connect(url)


def query(url: str, text: str) -> list[tuple[Any, ...]]:
    with connect(url) as connection:
        return [tuple(row) for row in connection.execute(text).fetchall()]


def change(url: str, text: str) -> None:
    with connect(url) as connection:
        connection.execute(text)
        connection.commit()


@contextmanager
def opened(url: str, **options: str) -> Iterator[SqlStore]:
    store = open_store(url, **options)
    assert isinstance(store, SqlStore)
    with closing(store):
        yield store


def reopened_after_a_crash(url: str) -> SqlStore:
    """PostgreSQL may take a moment to notice that the dead writer is gone."""
    for _ in range(100):
        try:
            store = open_store(url)
            assert isinstance(store, SqlStore)
            return store
        except StoreBusy:
            time.sleep(0.05)
    raise AssertionError("the lock of a killed process was never given back")


def test_never_loses_what_was_acknowledged_when_killed(sql_url: str) -> None:
    rng = random.Random(7)
    acknowledged = 0
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(4):
        child = subprocess.Popen([sys.executable, "-c", WRITER, sql_url], stdout=subprocess.PIPE, env=env, text=True)
        assert child.stdout is not None
        with child, child.stdout as lines:
            assert next(lines) == "ready\n"
            for _ in range(rng.randrange(1, 200)):
                acknowledged = max(acknowledged, int(next(lines)))
            child.kill()
            # what it managed to say before it died was acknowledged too; the last line may be cut short
            acknowledged = max([acknowledged, *(int(line) for line in lines if line.endswith("\n"))])
        with closing(reopened_after_a_crash(sql_url)) as store:
            log = store.events()
            assert [one.seq for one in log] == list(range(1, len(log) + 1))
            assert len(log) >= acknowledged
            assert store.load() == replay(one.event for one in log)
            assert query(sql_url, "SELECT count(*) FROM jobs") == [(len(log),)]
            store.checkpoint(store.load())
    assert acknowledged > 4


def test_everything_is_there_after_reopening(sql_url: str) -> None:
    log = [*two_nodes(), *short_life(1), *moving_life(2)]
    with opened(sql_url) as store:
        store.append(1, log)
    with opened(sql_url) as store:
        assert store.load() == replay(log)
        assert store.runs(2)[0].id.attempt == 1


def test_a_second_writer_is_refused_and_told_who_has_it(sql_url: str) -> None:
    with opened(sql_url, holder="the daemon at http://127.0.0.1:4321") as first:
        with pytest.raises(StoreBusy, match=r"in use by the daemon at http://127\.0\.0\.1:4321"):
            open_store(sql_url)
        first.append(1, [submitted(1)])
    with opened(sql_url, holder="a copy") as second:
        with pytest.raises(StoreBusy, match=r"in use by a copy[^ ]?( |$)"):
            open_store(sql_url)
        second.append(2, [submitted(2)])


def test_never_writes_after_another_took_over(sql_url: str) -> None:
    """The lock was lost without notice (a partition, a deleted lock file): the epoch in the database still holds."""
    with opened(sql_url) as stale:
        stale.append(1, [submitted(1)])
        change(sql_url, "UPDATE writer SET epoch = epoch + 1, holder = 'the other one'")
        with pytest.raises(StoreFenced, match="taken over by the other one"):
            stale.append(2, [submitted(2)])
        with pytest.raises(StoreFenced):
            stale.checkpoint(replay([submitted(1)]))
        assert len(stale.events()) == 1
        assert query(sql_url, "SELECT count(*) FROM checkpoints") == [(0,)]


def test_the_tables_can_be_read_with_plain_sql(sql_url: str) -> None:
    log = [*two_nodes(), *moving_life(1), submitted(2, name="waits", user="bob", team="vision", priority=5)]
    log += [ev.NodeConditionChanged(node="n2", condition=NodeCondition.CORDONED, at_s=T0, why="fan")]
    gpus = (Gpu(index=0, type="gpu"), Gpu(index=1, type="gpu", health=GpuHealth.QUARANTINED, why="memory in use"))
    log += [ev.NodeObserved(node=Node(name="n1", gpus=gpus, cpus=8), at_s=T0)]
    with opened(sql_url) as store:
        store.append(1, log)
        jobs = (
            "SELECT id, name, owner, team, state, gpus, priority, submitted_at, ended_at, migrations, message FROM jobs"
        )
        assert query(sql_url, f"{jobs} ORDER BY id") == [
            (1, "job-1", "ann", "", "completed", 0, 0, "2023-11-14T22:13:21.000Z", "2023-11-14T22:13:30.000Z", 1, ""),
            (2, "waits", "bob", "vision", "queued", 0, 5, "2023-11-14T22:13:22.000Z", None, 0, ""),
        ]
        assert query(sql_url, "SELECT job, attempt, nodes, stop_why, exit_reason FROM runs ORDER BY attempt") == [
            (1, 1, "n1", "preempted", "stopped"),
            (1, 2, "n2", None, "finished"),
        ]
        moves = query(sql_url, "SELECT job, attempt, at, from_nodes, to_nodes FROM migrations")
        assert moves == [(1, 2, "2023-11-14T22:13:26.000Z", "n1", "n2")]
        nodes = query(sql_url, "SELECT name, condition, why, gpus FROM nodes ORDER BY name")
        assert nodes == [("n1", "ready", "", 2), ("n2", "cordoned", "fan", 2)]
        health = "SELECT node, gpu, health, why FROM gpus WHERE health <> 'ok'"
        assert query(sql_url, health) == [("n1", 1, "quarantined", "memory in use")]
        store.append(len(log) + 1, [ev.NodeRemoved(node="n1", at_s=T0)])
        assert query(sql_url, "SELECT name FROM nodes") == [("n2",)]
        assert query(sql_url, "SELECT DISTINCT node FROM gpus") == [("n2",)]


def test_what_ran_can_be_read_with_plain_sql(sql_url: str) -> None:
    log = [*two_nodes(), *moving_life(1), submitted(2, command=("python", "a b.py"), image="torch:2")]
    run = RunId(2, 1)
    log += [planned(2), ev.RunStarted(run=run, at_s=T0 + 20)]
    log += [ev.EpochEnded(run=run, at_s=T0 + 30, epoch=1, epochs=5, metrics={"loss": 0.5, "accuracy": 0.9})]
    metrics = '{"accuracy": 0.9, "loss": 0.5}'
    with opened(sql_url) as store:
        store.append(1, log)
        now = "SELECT command, image, epochs_done, epochs_total, metrics FROM jobs WHERE id = 2"
        assert query(sql_url, now) == [("python 'a b.py'", "torch:2", 1, 5, metrics)]
        history = "SELECT id, name, owner, state, command, gpu_hours > 0, ended_at FROM job_history"
        before = query(sql_url, history)
        assert [(row[0], row[3]) for row in before] == [(1, "completed")]
        store.rebuild()
        assert query(sql_url, history) == before
        assert query(sql_url, now) == [("python 'a b.py'", "torch:2", 1, 5, metrics)]


def test_the_sizes_that_a_job_may_have_can_be_read_with_plain_sql(sql_url: str) -> None:
    with opened(sql_url) as store:
        store.append(1, [submitted(1, gpus=GpuRequest(min=2, max=6))])
        assert query(sql_url, "SELECT gpus, gpus_min, gpus_max FROM jobs") == [(0, 2, 6)]


def test_jobs_of_before_get_their_plain_columns(sql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(sql_url) as store:
        store.append(1, [submitted(1, command=("/bin/sh", "-c", "make && python train.py"))])
        change(sql_url, "UPDATE jobs SET command = ''")
    monkeypatch.setattr(sql, "SCHEMA_STEPS", (*SCHEMA_STEPS, (migrate.fill_plain_columns,)))
    monkeypatch.setattr(sql, "VERSION", VERSION + 1)
    with opened(sql_url):
        assert query(sql_url, "SELECT command FROM jobs") == [("make && python train.py",)]


def test_a_report_never_writes_the_whole_record_again(sql_url: str) -> None:
    run = RunId(1, 1)
    with opened(sql_url) as store:
        store.append(1, [submitted(1), planned(1), ev.RunStarted(run=run, at_s=T0 + 2)])
        written = query(sql_url, "SELECT record FROM jobs UNION ALL SELECT record FROM runs")
        store.append(4, [ev.EpochEnded(run=run, at_s=T0 + 3, epoch=1, epochs=5)])
        assert query(sql_url, "SELECT record FROM jobs UNION ALL SELECT record FROM runs") == written
        assert query(sql_url, "SELECT epochs_done, epochs_total FROM jobs") == [(1, 5)]
        before = store.job(1), store.runs(1)
        store.rebuild()
        assert (store.job(1), store.runs(1)) == before


def test_never_shows_a_jobs_environment_in_a_column_that_people_read(sql_url: str) -> None:
    secret = "hunter2-hunter2"
    with opened(sql_url) as store:
        start = submitted(1, env={"TOKEN": secret}, secrets=("TOKEN",))
        store.append(1, [start, *moving_life(1)[1:]])
        store.checkpoint(store.load())
        found = store.job(1)
        assert found is not None
        assert found.spec.env == {"TOKEN": secret}
    for table in ("events", "jobs", "runs", "nodes", "gpus", "migrations", "checkpoints", "writer"):
        for row in query(sql_url, f"SELECT * FROM {table}"):
            assert secret not in str([value for value in row if not isinstance(value, bytes)])


def test_a_newer_database_is_refused_and_not_touched(sql_url: str) -> None:
    with opened(sql_url) as store:
        store.append(1, [submitted(1)])
    change(sql_url, f"INSERT INTO schema_versions VALUES ({VERSION + 1}, 'later')")
    before = _picture(sql_url)
    with pytest.raises(StoreTooNew, match=r"later version of Swell .* not touched"):
        open_store(sql_url)
    assert _picture(sql_url) == before


def _picture(url: str) -> list[Any]:
    if url.startswith("sqlite"):
        return [Path(url.removeprefix("sqlite:///")).read_bytes()]
    return [query(url, f"SELECT * FROM {table}") for table in ("events", "jobs", "writer", "schema_versions")]


def test_an_older_database_is_copied_and_then_brought_up_to_date(sql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(sql_url) as store:
        store.append(1, short_life(1))
    step = ("CREATE TABLE colours (name TEXT PRIMARY KEY, amount INTEGER)", "INSERT INTO colours VALUES ('blue', 3)")
    monkeypatch.setattr(sql, "SCHEMA_STEPS", (*SCHEMA_STEPS, step))
    monkeypatch.setattr(sql, "VERSION", VERSION + 1)
    with opened(sql_url) as store:
        assert store.load() == replay(short_life(1))
        assert query(sql_url, "SELECT amount FROM colours") == [(3,)]
        assert query(sql_url, "SELECT max(version) FROM schema_versions") == [(VERSION + 1,)]
    assert _backups(sql_url) == [len(short_life(1))]
    with opened(sql_url):
        assert len(_backups(sql_url)) == 1  # nothing to bring up to date, nothing to copy


def _backups(url: str) -> list[int]:
    """How many events each copy holds."""
    count = "SELECT count(*) FROM "
    if url.startswith("sqlite:///"):
        path = Path(url.removeprefix("sqlite:///"))
        copies = sorted(path.parent.glob(f"{path.name}.v{VERSION}-*.backup"))
        assert all(copy.stat().st_mode & 0o077 == 0 for copy in copies)
        return [query(f"sqlite:///{copy}", f"{count} events")[0][0] for copy in copies]
    schemas = query(url, "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'swell_backup_%'")
    return [query(url, f"{count} {schema}.events")[0][0] for (schema,) in schemas]


def test_a_migration_that_fails_changes_nothing(sql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(sql_url) as store:
        store.append(1, short_life(1))
    monkeypatch.setattr(sql, "SCHEMA_STEPS", (*SCHEMA_STEPS, ("CREATE TABLE colours (name TEXT)", "NONSENSE")))
    monkeypatch.setattr(sql, "VERSION", VERSION + 1)
    with pytest.raises(StoreError):
        open_store(sql_url)
    monkeypatch.undo()
    with opened(sql_url) as store:
        assert store.load() == replay(short_life(1))


def test_a_damaged_checkpoint_costs_time_and_no_facts(sql_url: str) -> None:
    log = [*two_nodes(), *short_life(1), *moving_life(2)]
    with opened(sql_url) as store:
        store.append(1, log[:5])
        store.checkpoint(store.load())
        store.append(6, log[5:])
        store.checkpoint(store.load())
        change(sql_url, f"UPDATE checkpoints SET body = substr(body, 1, 20) WHERE seq = {len(log)}")
        assert store.load() == replay(log)
        change(sql_url, "UPDATE checkpoints SET body = substr(body, 1, 20)")
        assert store.load() == replay(log)


def test_only_the_last_checkpoints_are_kept(sql_url: str) -> None:
    with opened(sql_url) as store:
        for job in range(1, 6):
            store.append(job, [submitted(job)])
            store.checkpoint(store.load())
        store.checkpoint(store.load())
        assert query(sql_url, "SELECT DISTINCT seq FROM checkpoints ORDER BY seq") == [(4,), (5,)]


def test_a_hole_in_the_log_is_damage_and_is_said(sql_url: str) -> None:
    with opened(sql_url) as store:
        store.append(1, [submitted(job) for job in range(1, 6)])
        change(sql_url, "DELETE FROM events WHERE seq = 3")
        with pytest.raises(StoreError, match="gap in its log"):
            store.load()


def test_an_event_that_cannot_be_is_damage_and_names_its_number(sql_url: str) -> None:
    with opened(sql_url) as store:
        store.append(1, [submitted(job) for job in range(1, 4)])
        change(sql_url, "UPDATE events SET kind = 'Nonsense' WHERE seq = 2")
        with pytest.raises(StoreError, match=r"event 2: .*'Nonsense'"):
            store.load()


def test_the_cluster_keeps_its_id_and_every_writer_has_a_higher_epoch(sql_url: str) -> None:
    with closing(open_store(sql_url)) as store:
        first = store.cluster_id, store.epoch
    with closing(open_store(sql_url)) as store:
        assert (store.cluster_id, store.epoch) == (first[0], first[1] + 1)
