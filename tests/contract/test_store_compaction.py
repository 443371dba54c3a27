"""A log that was compacted makes the same state, shows the same history and is as well guarded as one that was not."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from contract.test_store_sql import change, opened, query, reopened_after_a_crash
from lives import T0, ended, moving_life, on, planned, short_life, submitted, two_nodes
from swell.core import events as ev
from swell.core.errors import NotFound, StoreDamaged
from swell.core.events import Event
from swell.core.ids import RunId
from swell.core.lifecycle import replay
from swell.core.state import KEEP_ENDED
from swell.daemon.committer import Committer
from swell.daemon.compaction import compaction
from swell.placement.interference import WatchedBook
from swell.ports import JobQuery
from swell.speed.book import Book
from swell.store import replaying
from swell.store.check import check
from swell.store.journal import Journal
from swell.store.open import database_at, open_store
from swell.store.sql import SqlStore

LATE = T0 + 10_000
"""After everything in the logs below."""


def resized_life(job: int) -> list[Event]:
    run, at_s = RunId(job, 1), T0 + job
    return [
        submitted(job),
        planned(job),
        ev.RunStarted(run=run, at_s=at_s + 2),
        ev.RunResized(run=run, allocation=on("n1", 0, 1), at_s=at_s + 3, reason="room"),
        ended(job),
    ]


LOG: list[Event] = [
    *two_nodes(),
    *(event for job in range(1, 31) for event in (short_life, moving_life, resized_life)[job % 3](job)),
    submitted(31, env={"T": "hunter2"}, secrets=("T",), key="once"),
    planned(31),
    ev.RunStarted(run=RunId(31, 1), at_s=T0 + 40),
    submitted(32),
]


def fill(store: SqlStore, log: Sequence[Event], checkpoints: int = 3) -> None:
    """With checkpoints and books at equal distances, and some events after the last."""
    step = len(log) // (checkpoints + 1)
    for start in range(0, len(log), step):
        store.append(start + 1, log[start : start + step])
        if start + step < len(log):
            store.checkpoint(store.load(), b"a book")


def compacted(store: SqlStore, before_s: float = LATE, limit: int = 7) -> int:
    removed = 0
    while count := store.compact(before_s, limit):
        removed += count
    return removed


def picture(store: SqlStore) -> object:
    """All that people can ask."""
    state = store.load()
    jobs = store.jobs(JobQuery(limit=10_000))
    runs = {job.id: store.runs(job.id) for job in jobs}
    return state, jobs, runs, store.runs_between(T0, LATE, 10_000), store.book()


def test_everything_is_as_it_was_but_the_old_events(sql_url: str) -> None:
    with opened(sql_url) as store:
        fill(store, LOG)
        before, events = picture(store), store.events()
        removed = compacted(store)
        [(second,)] = query(sql_url, "SELECT min(seq) FROM checkpoints")
        assert removed == second == store.first_seq - 1 > 0
        assert picture(store) == before
        assert store.events() == events[removed:]
        assert store.load().keys == {"once": 31}
        assert check(database_at(sql_url)) == []
    with opened(sql_url) as store:
        assert picture(store) == before
        assert store.first_seq == removed + 1
        assert store.load().jobs[31].spec.env["T"] == "hunter2"
        store.append(len(LOG) + 1, short_life(33))
        assert store.load() == replay([*LOG, *short_life(33)])


def test_only_events_of_before_the_given_time_go(sql_url: str) -> None:
    with opened(sql_url) as store:
        fill(store, LOG)
        before_s = LOG[20].at_s
        removed = compacted(store, before_s)
        assert 0 < removed < 20
        assert store.events()[0].event.at_s >= before_s
        assert all(event.at_s < before_s for event in LOG[:removed])


def test_nothing_is_replayed_while_nothing_is_old_enough(sql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(sql_url) as store:
        fill(store, LOG)
        monkeypatch.setattr(replaying, "replay_page", None)
        assert store.compact(LOG[0].at_s, 7) == 0


def test_never_more_than_asked_for_at_a_time(sql_url: str) -> None:
    with opened(sql_url) as store:
        fill(store, LOG)
        assert store.compact(LATE, 3) == 3
        assert store.events()[0].seq == 4


@pytest.mark.parametrize("books", [0, 1])
def test_nothing_goes_before_two_checkpoints_and_two_books_have_it(sql_url: str, books: int) -> None:
    with opened(sql_url) as store:
        store.append(1, LOG)
        assert compacted(store) == 0
        store.checkpoint(store.load(), b"a book" if books else b"")
        assert compacted(store) == 0
        store.append(len(LOG) + 1, short_life(33))
        store.checkpoint(store.load())
        assert compacted(store) == 0


def test_a_damaged_checkpoint_or_book_costs_no_facts_afterwards(sql_url: str) -> None:
    with opened(sql_url) as store:
        fill(store, LOG)
        compacted(store)
    change(sql_url, "UPDATE checkpoints SET body = 'x' WHERE seq = (SELECT max(seq) FROM checkpoints)")
    change(sql_url, "UPDATE books SET crc = crc + 1 WHERE seq = (SELECT max(seq) FROM books)")
    with opened(sql_url) as store:
        assert store.load() == replay(LOG)
        assert store.book()[1] == b"a book"
        assert store.book()[0] >= store.first_seq - 1  # the rest is in the log


def test_never_starts_without_the_checkpoints_that_hold_the_rest(sql_url: str) -> None:
    with opened(sql_url) as store:
        fill(store, LOG)
        first = 1 + compacted(store)
    change(sql_url, "DELETE FROM checkpoints")
    with pytest.raises(StoreDamaged, match=f"no checkpoint can be read, and its log begins with event {first}"):
        open_store(sql_url)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE events SET at_s = at_s + 1 WHERE seq = 5",
        "DELETE FROM events WHERE seq = 5",
        "UPDATE events SET at_s = at_s + 1 WHERE seq = (SELECT max(seq) - 1 FROM checkpoints)",
        "UPDATE checkpoints SET seq = seq - 1 WHERE seq = (SELECT max(seq) FROM checkpoints)",
    ],
)
def test_never_makes_a_damaged_log_shorter(sql_url: str, damage: str) -> None:
    with opened(sql_url) as store:
        fill(store, LOG)
        change(sql_url, damage)
        before = query(sql_url, "SELECT count(*) FROM events")
        with pytest.raises(StoreDamaged):
            compacted(store, limit=10_000)
        assert query(sql_url, "SELECT count(*) FROM events") == before
        assert store.first_seq == 1


def test_never_takes_a_checkpoint_on_trust_that_the_log_does_not_make(
    sql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(sql_url) as store:
        fill(store, LOG)
        monkeypatch.setattr(replaying, "replay", lambda events, state: replay(list(events)[:-1], state))
        with pytest.raises(StoreDamaged):
            store.compact(LATE, 5)


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("DELETE FROM log_start", "are missing"),
        ("UPDATE log_start SET seq = seq + 1", "which cannot be"),
        ("UPDATE log_start SET seq = seq - 1", "are missing"),
        (
            "UPDATE log_start SET chain = (SELECT chain FROM events WHERE seq = (SELECT max(seq) FROM events))",
            "is not as it was written",
        ),
        ("DELETE FROM events WHERE seq = (SELECT min(seq) FROM events)", "are missing"),
    ],
)
def test_a_start_of_the_log_that_was_changed_is_found_by_the_doctor(sql_url: str, damage: str, found: str) -> None:
    with opened(sql_url) as store:
        fill(store, LOG)
        compacted(store)
    change(sql_url, damage)
    assert any(found in one.found for one in check(database_at(sql_url)))
    with opened(sql_url) as store:  # a good checkpoint at a later event is enough
        assert store.load() == replay(LOG)


def test_tables_are_made_anew_as_far_as_the_log_goes_and_history_is_kept(sql_url: str) -> None:
    with opened(sql_url) as store:
        fill(store, LOG)
        before = picture(store)
        compacted(store)
        change(sql_url, "UPDATE jobs SET state = 'queued' WHERE id IN (2, 31)")
        change(sql_url, "DELETE FROM jobs WHERE id = 30")
        change(sql_url, "DELETE FROM nodes")
        store.rebuild()
        assert picture(store) == before
    assert check(database_at(sql_url)) == []
    assert len(query(sql_url, "SELECT * FROM nodes")) == 2


def test_jobs_that_memory_forgot_are_still_listed(sql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swell.core.lifecycle.KEEP_ENDED", 4)
    assert KEEP_ENDED > 4
    with opened(sql_url) as store:
        fill(store, LOG)
        compacted(store)
        assert len(store.load().jobs) == 6
        assert len(store.jobs(JobQuery(limit=100))) == 32
        store.rebuild()
        assert len(store.jobs(JobQuery(limit=100))) == 32
        assert [run.id.attempt for run in store.runs(1)] == [1, 2]


def test_what_is_kept_of_a_job_goes_with_it(sql_url: str) -> None:
    with opened(sql_url) as store:
        fill(store, LOG)
        compacted(store)
        assert query(sql_url, "SELECT count(*) FROM allocations WHERE job = 2")[0][0] == 2
        store.append(len(LOG) + 1, [ev.JobRemoved(job=2, at_s=LATE)])
        assert query(sql_url, "SELECT count(*) FROM allocations WHERE job = 2") == [(0,)]


KILLED = """
import sys
from contract.test_store_compaction import LATE
from swell.store.open import open_store
store = open_store(sys.argv[1])
print("ready", flush=True)
while count := store.compact(LATE, 1):
    print(count, flush=True)
"""


def test_never_anything_but_whole_when_killed_in_the_middle(sql_url: str) -> None:
    with opened(sql_url) as store:
        fill(store, LOG)
        before = picture(store)
    rng = random.Random(18)
    last = 0
    for _ in range(6):
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        with subprocess.Popen([sys.executable, "-c", KILLED, sql_url], stdout=subprocess.PIPE, env=env) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            for _ in range(rng.randrange(8)):
                child.stdout.readline()
            child.send_signal(signal.SIGKILL)
        with closing(reopened_after_a_crash(sql_url)) as store:
            assert picture(store) == before
            assert store.first_seq > last
            last = store.first_seq
        assert check(database_at(sql_url)) == []


def test_the_speed_book_is_the_same_after_a_start(sql_url: str) -> None:
    """From the book of a checkpoint and what is left of the log."""

    async def main() -> None:
        with opened(sql_url) as store:
            live = WatchedBook(Book())
            for start in range(0, len(LOG), 40):
                store.append(start + 1, LOG[start : start + 40])
                for event in LOG[start : start + 40]:
                    live.learn(event)
                store.checkpoint(store.load(), live.keep())
            assert await compaction(store, _Clock(LATE), keep_days=0.01, pause_s=0.0).once() > 0
            read = WatchedBook(Book())
            committer = Committer(store, Journal(store), read)
            await committer.open()
            assert read.keep() == live.keep()
            with pytest.raises(NotFound, match="events 1 to"):
                await anext(committer.follow(0))
            assert (await anext(committer.follow(store.first_seq - 1))).seq == store.first_seq
            await committer.close()

    asyncio.run(main())


class _Clock:
    def __init__(self, now_s: float) -> None:
        self._now_s = now_s

    def now_s(self) -> float:
        return self._now_s

    def monotonic_s(self) -> float:
        return self._now_s
