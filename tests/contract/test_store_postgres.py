"""What only a server can suffer: it goes away and comes back, and somebody else is there meanwhile."""

from __future__ import annotations

import sys
from contextlib import closing

import pytest

from contract.postgres_server import Server
from lives import submitted
from swell.core.errors import StoreBusy, StoreError, StoreFenced
from swell.core.lifecycle import replay
from swell.store.open import open_store
from swell.store.postgres import LOCK_KEY, PostgresDatabase


def cut_connections(server: Server, url: str) -> None:
    import psycopg

    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        name = url.rpartition("/")[2]
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))


def test_it_goes_on_after_the_connection_was_lost(postgres: Server) -> None:
    url = postgres.new_database()
    with closing(open_store(url)) as store:
        store.append(1, [submitted(1)])
        cut_connections(postgres, url)
        with pytest.raises(StoreError, match=r"cannot be reached .* tried again"):
            store.append(2, [submitted(2)])
        state = store.load()
        assert state == replay([submitted(1)])
        store.append(2, [submitted(2)])
        assert store.load().last_job == 2


def test_a_server_that_is_silent_is_given_up_and_asked_again_by_a_new_session(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    from swell.store.postgres_session import Session

    monkeypatch.setattr(Session, "silence_s", 0.5)
    database = PostgresDatabase(postgres.new_database())
    with closing(database.connect()) as session:
        assert session.execute("SELECT 7 FROM pg_sleep(0.2)").fetchone() == (7,)
        with pytest.raises(Exception, match="has not answered") as told:
            session.execute("SELECT pg_sleep(30)")
    assert "cannot be reached" in str(database.explain(told.value))
    with closing(database.reader()) as reader:
        cursor = reader.cursor()
        cursor.execute("SELECT 7")
        assert cursor.fetchone() == (7,)


def test_changes_of_tables_at_the_start_may_take_their_time(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from swell.store.postgres_session import Session

    monkeypatch.setattr(Session, "silence_s", 0.3)
    database = PostgresDatabase(postgres.new_database())
    with database.examine():
        writer = database.writer()
    writer.cursor().execute("SELECT pg_sleep(1)")
    database.opened()
    with pytest.raises(Exception, match="has not answered"):
        writer.cursor().execute("SELECT pg_sleep(30)")
    writer.close()


def test_never_writes_after_another_took_over_while_it_was_away(postgres: Server) -> None:
    url = postgres.new_database()
    with closing(open_store(url)) as stale:
        stale.append(1, [submitted(1)])
        cut_connections(postgres, url)
        with closing(open_store(url, holder="the new daemon")) as fresh:
            fresh.append(2, [submitted(2, user="fresh")])
            for _ in range(2):
                with pytest.raises(StoreError):
                    stale.append(2, [submitted(2, user="stale")])
            for _ in range(2):  # also while the other has it: waiting for it would be in vain
                with pytest.raises(StoreFenced, match="taken over by the new daemon"):
                    stale.append(3, [submitted(3, user="stale")])
        with pytest.raises(StoreFenced, match="taken over by the new daemon"):
            stale.append(3, [submitted(3, user="stale")])
        assert [one.event.spec.user for one in stale.events()] == ["ann", "fresh"]  # type: ignore[union-attr]


def test_never_taken_for_lost_while_the_own_session_lingers_on_the_server(postgres: Server) -> None:
    """A server may learn late that a connection is gone; until then the lock is held by our former self."""
    import psycopg

    url = postgres.new_database()
    with closing(open_store(url)) as store:
        store.append(1, [submitted(1)])
        cut_connections(postgres, url)
        with psycopg.connect(url, autocommit=True) as former_self:
            former_self.execute("SELECT pg_advisory_lock(%s)", (LOCK_KEY,))
            with pytest.raises(StoreError):
                store.append(2, [submitted(2)])
            with pytest.raises(StoreBusy):
                store.prove_writable()
        store.prove_writable()
        store.append(2, [submitted(2)])


def test_a_server_that_is_not_there_is_said_without_the_password() -> None:
    with pytest.raises(StoreError, match=r"the database swell on 127\.0\.0\.1 cannot be reached") as caught:
        open_store("postgresql://me:hunter2@127.0.0.1:1/swell")
    assert "hunter2" not in str(caught.value)


def test_a_missing_driver_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=r"pip install 'swell\[postgres\]'"):
        PostgresDatabase("postgresql://here/swell")
