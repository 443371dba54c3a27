"""Copies made while somebody writes are whole and of one moment; restored elsewhere they are the same state. Databases
of every earlier version come up to date."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from contract.postgres_server import Server
from contract.test_store_compaction import LATE, LOG, compacted, fill, picture
from contract.test_store_sql import change, opened, query
from lives import moving_life, short_life, submitted
from swell.core.database_mark import is_database
from swell.core.errors import StoreBusy, StoreDamaged, StoreError
from swell.core.events import Event
from swell.core.lifecycle import replay
from swell.ports import JobQuery
from swell.store.backup import back_up, restore
from swell.store.check import check
from swell.store.open import database_at, open_store
from swell.store.schema import VERSION
from swell.store.secrets import concealed

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture(params=["sqlite", "postgresql"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'elsewhere' / 'swell.db'}"
    server: Server = request.getfixturevalue("postgres")
    return server.new_database()


def test_a_copy_restored_into_either_database_is_the_same(sql_url: str, elsewhere: str, tmp_path: Path) -> None:
    with opened(sql_url) as store:
        fill(store, LOG)
        compacted(store)
        before, cluster_id = picture(store), store.cluster_id
        copied = back_up(database_at(sql_url), tmp_path / "copy")  # while it is open
        assert is_database(tmp_path / "copy"), "so that no snapshot takes it"
    assert (copied.events, copied.jobs) == (len(LOG), 32)
    assert (tmp_path / "copy").stat().st_mode & 0o077 == 0
    restore(tmp_path / "copy", database_at(elsewhere))
    with opened(elsewhere) as store:
        assert picture(store) == before
        assert store.cluster_id == cluster_id
        assert store.load().jobs[31].spec.env["T"] == "hunter2"
        store.append(len(LOG) + 1, short_life(33))
        assert store.load() == replay([*LOG, *short_life(33)])
    assert check(database_at(elsewhere)) == []
    assert sorted(path.name for path in tmp_path.glob(".swell-backup*")) == []


def test_a_file_that_is_no_database_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('a program')\n")
    with pytest.raises(StoreError, match=r"train\.py is no copy that `swell backup` made; nothing was changed"):
        restore(tmp_path / "train.py", database_at(f"sqlite:///{tmp_path / 'swell.db'}"))
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_copies_made_under_load_are_each_of_one_moment(sql_url: str, tmp_path: Path) -> None:
    log: list[Event] = [event for job in range(1, 2000) for event in (moving_life if job % 2 else short_life)(job)]
    done = threading.Event()
    with opened(sql_url) as store:
        store.append(1, log[:50])

        def write() -> None:
            for seq in range(51, len(log), 3):
                if done.is_set():
                    return
                store.append(seq, log[seq - 1 : seq + 2])

        writer = threading.Thread(target=write)
        writer.start()
        try:
            copies = [back_up(database_at(sql_url), tmp_path / str(number)) for number in range(5)]
        finally:
            done.set()
            writer.join()
    found = [copy.events for copy in copies]
    assert found == sorted(found)
    assert found[0] < len(log)  # the first one at least was made while events came
    for number, copy in enumerate(copies):
        url = f"sqlite:///{tmp_path / 'elsewhere' / str(number) / 'swell.db'}"
        restore(tmp_path / str(number), database_at(url))
        with opened(url) as store:
            assert store.load() == replay(log[: copy.events])
            assert {job.id: job for job in store.jobs(JobQuery(limit=10_000))} == store.load().jobs


def test_a_file_that_is_there_is_never_written_over(sql_url: str, tmp_path: Path) -> None:
    (tmp_path / "copy").write_text("mine")
    with opened(sql_url), pytest.raises(StoreError, match="is there already"):
        back_up(database_at(sql_url), tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "mine"


def test_a_damaged_database_is_not_copied_as_if_it_were_whole(sql_url: str, tmp_path: Path) -> None:
    with opened(sql_url) as store:
        store.append(1, LOG)
    change(sql_url, "UPDATE events SET at_s = at_s + 1 WHERE seq = 9")
    with pytest.raises(StoreDamaged, match="event 9"):
        back_up(database_at(sql_url), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_damaged_copy_is_refused_and_nothing_changes(sql_url: str, tmp_path: Path) -> None:
    with opened(sql_url) as store:
        store.append(1, LOG)
        back_up(database_at(sql_url), tmp_path / "copy")
    data = bytearray((tmp_path / "copy").read_bytes())
    data[len(data) // 2 : len(data) // 2 + 500] = bytes(500)
    (tmp_path / "copy").write_bytes(data)
    target = tmp_path / "elsewhere" / "swell.db"
    with opened(f"sqlite:///{target}") as store:
        store.append(1, [submitted(1)])
    for bad in (tmp_path / "copy", tmp_path / "nothing", Path(__file__)):
        with pytest.raises(StoreError):
            restore(bad, database_at(f"sqlite:///{target}"))
    with opened(f"sqlite:///{target}") as store:
        assert store.load() == replay([submitted(1)])


def test_never_restores_over_a_database_in_use(sql_url: str, tmp_path: Path) -> None:
    with opened(sql_url) as store:
        store.append(1, LOG)
        back_up(database_at(sql_url), tmp_path / "copy")
        with pytest.raises(StoreBusy):
            restore(tmp_path / "copy", database_at(sql_url))


def test_what_was_there_before_a_restore_is_moved_aside(tmp_path: Path) -> None:
    here, there = tmp_path / "here" / "swell.db", tmp_path / "there" / "swell.db"
    for path, log in ((here, LOG), (there, short_life(1))):
        with opened(f"sqlite:///{path}") as store:
            store.append(1, log)
    back_up(database_at(f"sqlite:///{here}"), tmp_path / "copy")
    _, said = restore(tmp_path / "copy", database_at(f"sqlite:///{there}"))
    [aside] = there.parent.glob("swell.db.before-restore-*Z")
    assert str(aside) in said
    with opened(f"sqlite:///{aside}") as store:
        assert store.load() == replay(short_life(1))
    with opened(f"sqlite:///{there}") as store:
        assert store.load() == replay(LOG)


def test_never_restores_into_tables_that_are_there(postgres: Server, tmp_path: Path) -> None:
    url = postgres.new_database()
    with opened(url) as store:
        store.append(1, LOG)
    back_up(database_at(url), tmp_path / "copy")
    with pytest.raises(StoreError, match="has tables already"):
        restore(tmp_path / "copy", database_at(url))
    with opened(url) as store:
        assert store.load() == replay(LOG)


EARLIER = sorted(int(path.stem.rpartition("-")[2]) for path in FIXTURES.glob("schema-*.sql"))
"""Written by Swell as it was then, as SQL text (`sqlite3.Connection.iterdump`)."""


def test_there_is_a_database_of_every_earlier_version() -> None:
    missing = set(range(1, VERSION)) - set(EARLIER)
    assert not missing, "make them with the code of before the new step: see tests/contract/fixtures/make.py"


@pytest.mark.parametrize("version", EARLIER)
def test_a_database_of_an_earlier_version_comes_up_to_date(version: int, tmp_path: Path) -> None:
    path = tmp_path / "swell.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((FIXTURES / f"schema-{version}.sql").read_text())
    url = f"sqlite:///{path}"
    assert query(url, "SELECT max(version) FROM schema_versions") == [(version,)]
    for _ in range(2):
        with opened(url) as store:
            state = store.load()
            assert state.seq == 20
            assert {job: record.state.value for job, record in state.jobs.items()} == {
                1: "completed",
                2: "completed",
                3: "running",
                4: "queued",
            }
            logged = replay(one.event for one in store.events())
            # a checkpoint of before does not say which machine has a job's files; nothing is carried for such a job
            recorded = {job: replace(concealed(record), files_on="") for job, record in state.jobs.items()}
            assert recorded == {job: replace(record, files_on="") for job, record in logged.jobs.items()}
            assert state.jobs[3].spec.env["TOKEN"] == "hunter2"
            assert state.jobs[3].epochs_done == 1
            assert state.keys == {"once": 3}
            shown = {job.id: (job.state, job.spec, job.epochs_done, job.attempts) for job in store.jobs(JobQuery())}
            known = {job.id: (job.state, job.spec, job.epochs_done, job.attempts) for job in state.jobs.values()}
            assert shown == known
            assert [run.id.attempt for run in store.runs(2)] == [1, 2]
        assert check(database_at(url)) == []
    back_up(database_at(url), tmp_path / "copy")
    with closing(open_store(f"sqlite:///{tmp_path / 'copy'}")) as copy:
        assert copy.load() == state


@pytest.mark.parametrize("version", EARLIER)
def test_a_copy_of_an_earlier_version_can_be_restored(version: int, elsewhere: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "copy")) as connection:
        connection.executescript((FIXTURES / f"schema-{version}.sql").read_text())
    before = (tmp_path / "copy").read_bytes()
    restore(tmp_path / "copy", database_at(elsewhere))
    assert (tmp_path / "copy").read_bytes() == before
    with opened(elsewhere) as store:
        assert store.load().jobs[3].spec.env["TOKEN"] == "hunter2"
        assert len(store.runs_between(0.0, LATE, 10)) == 4
