"""What only a file can suffer: a full disk, a cut, garbage, somebody's SQL shell."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from lives import short_life, submitted
from swell.core.errors import StoreDamaged, StoreError, StoreFenced, StoreFull
from swell.core.lifecycle import replay
from swell.core.state import State
from swell.store import sqlite
from swell.store.dialect import Connection
from swell.store.journal import Journal
from swell.store.open import open_store
from swell.store.sql import SqlStore
from swell.store.sqlite import SqliteDatabase

FILES = dict.fromkeys(("swell.db", "swell.db-shm", "swell.db-wal", "swell.db.last", "swell.db.lock"), 0)
LOG = [event for job in range(1, 301) for event in short_life(job)]


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def read(path: Path) -> State:
    with closing(open_store(url_of(path))) as store:
        return store.load()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "swell.db"


@pytest.fixture
def full(path: Path) -> Path:
    """A database with something in it, closed."""
    with closing(open_store(url_of(path))) as store:
        store.append(1, LOG)
    return path


def test_the_files_are_only_for_their_owner(full: Path) -> None:
    with closing(open_store(url_of(full))):
        assert {one.name: one.stat().st_mode & 0o077 for one in full.parent.iterdir()} == FILES


@pytest.mark.parametrize("keep", [0, 1, 100, 4096, 4096 * 7 + 13, -4096, -1], ids=str)
def test_never_starts_on_a_truncated_database_nor_changes_it(full: Path, keep: int) -> None:
    whole = full.read_bytes()
    broken = whole[:keep]
    full.write_bytes(broken)
    with pytest.raises(StoreDamaged, match=r"swell\.db .*Nothing in it was changed\. Restore it .* move it away"):
        read(full)
    assert full.read_bytes() == broken
    full.write_bytes(whole)
    assert read(full) == replay(LOG)


def test_garbage_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"not a database " * 1000)
    with pytest.raises(StoreDamaged, match="not a database"):
        open_store(url_of(path))
    assert path.read_bytes() == b"not a database " * 1000


def test_overwritten_pages_are_damage_and_never_a_wrong_state(full: Path) -> None:
    whole = full.read_bytes()
    quarter = len(whole) // 4
    full.write_bytes(whole[:quarter] + b"\xff" * (2 * quarter) + whole[3 * quarter :])
    with pytest.raises(StoreDamaged):
        read(full)


def test_a_log_without_its_database_is_not_mixed_into_a_new_one(path: Path) -> None:
    Path(f"{path}-wal").write_bytes(b"old")
    with pytest.raises(StoreDamaged, match=r"swell\.db-wal beside it is still there"):
        open_store(url_of(path))
    assert not path.exists()


def test_somebody_elses_database_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE jobs (mine TEXT)")
    with pytest.raises(StoreDamaged, match="not a database of Swell"):
        open_store(url_of(path))


def test_a_leftover_of_a_first_start_cut_short_does_no_harm(path: Path) -> None:
    Path(f"{path}.new").write_bytes(b"half")
    with closing(open_store(url_of(path))) as store:
        store.append(1, [submitted(1)])


def test_never_writes_when_the_lock_file_was_deleted_and_another_came(path: Path) -> None:
    with closing(open_store(url_of(path))) as stale:
        stale.append(1, [submitted(1)])
        Path(f"{path}.lock").unlink()
        with closing(open_store(url_of(path), holder="the new daemon")) as fresh:
            with pytest.raises(StoreFenced, match="the new daemon"):
                stale.append(2, [submitted(2, user="stale")])
            fresh.append(2, [submitted(2, user="fresh")])
            assert fresh.load().jobs[2].spec.user == "fresh"


def test_a_person_with_a_sql_shell_who_locks_the_file_is_named_as_the_cause(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_S", 0.05)
    with closing(open_store(url_of(path))) as store, closing(sqlite3.connect(path, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked by another program"):
            store.append(1, [submitted(1)])
        shell.execute("ROLLBACK")
        store.append(1, [submitted(1)])


class SmallDatabase(SqliteDatabase):
    """A database that may have only so many pages: SQLite then says what it says on a full disk."""

    pages = 10_000

    def writer(self) -> Connection:
        connection = super().writer()
        connection.cursor().execute(f"PRAGMA max_page_count = {self.pages}")
        return connection


def test_never_half_a_batch_when_the_database_is_full(path: Path) -> None:
    small = SmallDatabase(path, "us")
    small.pages = 40
    with closing(SqlStore(small, "us")) as store:
        store.append(1, [submitted(1)])
        with pytest.raises(StoreFull, match=r"no space left .* free some space there and it continues by itself"):
            store.append(2, [submitted(job) for job in range(2, 500)])
        assert len(store.events()) == 1
        assert store.job(2) is None
        store.append(2, [submitted(2)])
        assert store.load() == replay([submitted(1), submitted(2)])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 3 MiB."""
    mount = tmp_path / "disk"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "swell-test", str(mount)], capture_output=True)
    if made.returncode != 0:
        pytest.skip(f"cannot mount a small file system here: {made.stderr.decode().strip()}")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def test_a_full_disk_is_said_nothing_acknowledged_is_lost_and_it_goes_on_when_there_is_space(small_disk: Path) -> None:
    async def main() -> None:
        store = open_store(url_of(small_disk / "swell.db"))
        journal = Journal(store)
        await journal.recover()
        acknowledged = 0
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"x" * (1 << 20))
        while journal.failed is None:
            with suppress(StoreFull):
                acknowledged = await journal.append([submitted(acknowledged + 1)])
        assert "no space left" in str(journal.failed)
        assert acknowledged > 10
        for _ in range(3):  # still full: still said, still whole
            state = await journal.recover()
            assert state.seq == acknowledged
            with pytest.raises(StoreFull):
                await journal.append([submitted(state.last_job + n) for n in range(1, 200)])
        ballast.unlink()
        state = await journal.recover()
        assert state == replay(submitted(job) for job in range(1, acknowledged + 1))
        assert await journal.append([submitted(state.last_job + 1)]) == acknowledged + 1
        await journal.close()
        store.close()

    asyncio.run(main())


def test_where_there_is_no_room_for_a_database_at_all(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(b"x" * ((3 << 20) - 8192))
    with pytest.raises(StoreFull, match="no space left"):
        open_store(url_of(small_disk / "swell.db"))
    (small_disk / "ballast").unlink()
    with closing(open_store(url_of(small_disk / "swell.db"))) as store:
        store.append(1, [submitted(1)])


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/swell\.db"):
        open_store(url_of(tmp_path / "file" / "swell.db"))


@pytest.mark.parametrize("url", ["", "sqlite:///", "mysql://here/swell", "swell.db"])
def test_an_unknown_url_is_refused_with_the_forms_there_are(url: str) -> None:
    with pytest.raises(StoreError, match="sqlite:///path, postgresql://user@host/name or memory://"):
        open_store(url)


def test_a_relative_path_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(open_store("sqlite:///here/swell.db")):
        assert os.path.exists("here/swell.db")
