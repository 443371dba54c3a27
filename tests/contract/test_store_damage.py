"""Damage: what is refused is named and left as it was, byte for byte; a log that lost events is never gone on from."""

from __future__ import annotations

import os
import shutil
from contextlib import closing, suppress
from pathlib import Path

import pytest

from contract.test_store_sql import change, query
from lives import short_life, submitted
from swell.core.errors import StoreDamaged
from swell.core.lifecycle import replay
from swell.ports import JobQuery
from swell.store import replaying
from swell.store.check import check
from swell.store.open import database_at, open_store
from swell.store.replaying import Read, Tip

LOG = [event for job in range(1, 61) for event in short_life(job)]


def files(directory: Path) -> dict[str, bytes]:
    """All but the lock and SQLite's own scratch file."""
    return {
        one.name: one.read_bytes() for one in directory.iterdir() if one.suffix != ".lock" and "-shm" not in one.name
    }


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The files of a writer that was killed: the database with half of the log, the write-ahead log with the rest."""
    live = tmp_path / "live" / "swell.db"
    with closing(open_store(f"sqlite:///{live}")) as store:
        store.append(1, LOG[:150])
        store.checkpoint(store.load())
        change(f"sqlite:///{live}", "PRAGMA wal_checkpoint(TRUNCATE)")
        store.append(151, LOG[150:])
        shutil.copytree(live.parent, tmp_path / "killed", ignore=shutil.ignore_patterns("*-shm"))
    return tmp_path / "killed" / "swell.db"


def test_never_called_damaged_while_a_daemon_goes_on_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at is one moment; what was noted beside the database must not be of a later one."""
    url, look = f"sqlite:///{tmp_path / 'swell.db'}", replaying.tip_of
    with closing(open_store(url)) as store:
        store.append(1, LOG[:10])

        def slowly(read: Read, where: str) -> Tip:
            store.append(11, LOG[10:20])
            return look(read, where)

        monkeypatch.setattr(replaying, "tip_of", slowly)
        assert check(database_at(url)) == []


def refused(path: Path, match: str) -> None:
    before = files(path.parent)
    with pytest.raises(StoreDamaged, match=match):
        open_store(f"sqlite:///{path}")
    assert files(path.parent) == before


def test_a_writer_that_was_killed_left_everything(killed: Path) -> None:
    with closing(open_store(f"sqlite:///{killed}")) as store:
        assert store.load() == replay(LOG)


@pytest.mark.parametrize("keep", [0, 50, 4096, 4096 * 3, 4096 * 7 + 13], ids=str)
def test_a_truncated_database_with_a_write_ahead_log_is_left_as_it_is(killed: Path, keep: int) -> None:
    whole = killed.read_bytes()
    killed.write_bytes(whole[:keep])
    refused(killed, r"swell\.db")


@pytest.mark.parametrize("cut", [1, 4096])
def test_a_database_without_its_last_page_is_refused_or_whole(killed: Path, cut: int) -> None:
    """The write-ahead log may hold the page, and then nothing is missing."""
    os.truncate(killed, killed.stat().st_size - cut)
    with suppress(StoreDamaged), closing(open_store(f"sqlite:///{killed}")) as store:
        assert store.load() == replay(LOG)


@pytest.mark.parametrize("keep", [None, 0, 20, 4096, 30_000])
def test_a_write_ahead_log_that_was_cut_or_deleted_is_noticed(killed: Path, keep: int | None) -> None:
    wal = Path(f"{killed}-wal")
    if keep is None:
        wal.unlink()
    else:
        os.truncate(wal, keep)
    refused(killed, r"has lost events: its log ends at event 150, but 300 were committed.* delete .*swell\.db\.last")


def test_who_knows_that_events_are_missing_may_go_on_without_them(killed: Path) -> None:
    Path(f"{killed}-wal").unlink()
    Path(f"{killed}.last").unlink()
    with closing(open_store(f"sqlite:///{killed}")) as store:
        assert store.load() == replay(LOG[:150])


def test_a_database_that_was_deleted_is_not_replaced_by_an_empty_one(killed: Path) -> None:
    for name in ("", "-wal"):
        Path(f"{killed}{name}").unlink()
    refused(killed, r"is gone; 300 events were committed to it.* delete .*swell\.db\.last")


def test_another_log_of_the_same_length_is_noticed(killed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with closing(open_store(f"sqlite:///{other}")) as store:
        store.append(1, [submitted(job, user="bob") for job in range(1, 301)])
    Path(f"{killed}-wal").unlink()
    shutil.copy(other, killed)
    refused(killed, r"another log than the one that was written here: event 300 differs")


def test_a_watermark_that_is_damaged_is_no_reason_to_refuse(killed: Path) -> None:
    Path(f"{killed}.last").write_bytes(b"\0" * 63)
    with closing(open_store(f"sqlite:///{killed}")) as store:
        assert store.load() == replay(LOG)
    assert Path(f"{killed}.last").read_bytes().startswith(b"%020d " % 300)


@pytest.mark.parametrize(
    ("damage", "seq"),
    [
        ("DELETE FROM events WHERE seq = 7", 7),
        ("UPDATE events SET at_s = at_s + 1 WHERE seq = 8", 8),
        ("UPDATE events SET job = 99 WHERE seq = 9", 9),
        ("UPDATE events SET body = (SELECT body FROM events WHERE seq = 15) WHERE seq = 10", 10),
        ("UPDATE events SET seq = -1 WHERE seq = 11", 11),
        ("UPDATE events SET chain = NULL WHERE seq = 12", 12),
    ],
)
def test_a_row_that_was_deleted_or_changed_is_named_with_its_number(sql_url: str, damage: str, seq: int) -> None:
    with closing(open_store(sql_url)) as store:
        store.append(1, LOG)
    change(sql_url, damage)
    with pytest.raises(StoreDamaged, match=rf"event {seq}\b.*Nothing was changed\. Restore"):
        open_store(sql_url)


def test_rows_that_were_swapped_are_named(sql_url: str) -> None:
    with closing(open_store(sql_url)) as store:
        store.append(1, LOG)
    for one, other in ((6, -6), (11, 6), (-6, 11)):
        change(sql_url, f"UPDATE events SET seq = {other} WHERE seq = {one}")
    with pytest.raises(StoreDamaged, match=r"event 6\b"):
        open_store(sql_url)


def test_a_good_checkpoint_at_the_last_event_is_enough(sql_url: str) -> None:
    with closing(open_store(sql_url)) as store:
        store.append(1, LOG)
        store.checkpoint(store.load())
    change(sql_url, "DELETE FROM events WHERE seq < 280")
    with closing(open_store(sql_url)) as store:
        assert store.load() == replay(LOG)
        store.append(301, [submitted(61)])
    with closing(open_store(sql_url)) as store:
        assert store.load() == replay([*LOG, submitted(61)])


def test_a_checkpoint_put_under_another_number_is_not_used(sql_url: str) -> None:
    with closing(open_store(sql_url)) as store:
        store.append(1, LOG[:150])
        store.checkpoint(store.load())
        store.append(151, LOG[150:])
    change(sql_url, "UPDATE checkpoints SET seq = 300")
    with closing(open_store(sql_url)) as store:
        assert store.load() == replay(LOG)


def test_one_bad_row_does_not_break_every_listing(sql_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with closing(open_store(sql_url)) as store:
        store.append(1, LOG)
        change(sql_url, "UPDATE jobs SET record = (SELECT body FROM events WHERE seq = 1) WHERE id = 5")
        found = [record.id for record in store.jobs(JobQuery(limit=100))]
        assert found == [job for job in range(60, 0, -1) if job != 5]
        assert "job 5 is left out" in caplog.text
        with pytest.raises(StoreDamaged, match="doctor --rebuild"):
            store.job(5)
    assert query(sql_url, "SELECT count(*) FROM jobs") == [(60,)]
