"""A book that was kept and restored answers as the one that went on, now and after whatever comes next."""

from __future__ import annotations

import pickle
import random

import pytest

from lives import on
from swell.core import events as ev
from swell.core.events import ExitReason
from swell.core.ids import RunId
from swell.core.job import GpuRequest
from swell.placement.interference import WatchedBook
from swell.speed import keeping
from swell.speed.book import Book
from unit.speed.history import History

NODES = {"a": 4, "b": 8}


def live(told: History, rng: random.Random, jobs: range) -> None:
    """Jobs of a few families on several sizes and types; some finish. Somebody asks now and then."""
    for job in jobs:
        told.submit(job, epochs=rng.choice((0, 5, 40)), family=f"f{job % 5}", gpus=GpuRequest(min=1, max=8))
        for _ in range(rng.randint(0, 3)):
            gpus, time_s = rng.choice((1, 2, 4, 8)), rng.uniform(1.0, 100.0)
            told.run(job, gpus, [time_s * rng.uniform(0.9, 1.1) for _ in range(3)], gpu_type=rng.choice("ab"))
        if rng.random() < 0.3:
            run = RunId(job, told.state.jobs[job].attempts + 1)
            told.tell(ev.RunPlanned(run=run, allocation=on("n1", 1), at_s=told.now_s))
            told.end(job, ExitReason.FINISHED)
        if rng.random() < 0.5:
            answers(told, told.book)
            if isinstance(told, Both):
                answers(told, told.other)


def answers(told: History, book: Book | WatchedBook) -> list[object]:
    found: list[object] = []
    for record in told.state.jobs.values():
        if not record.ended:
            speed = book.speed(record, NODES)
            found += [speed.curve("a"), speed.curve("b"), speed.rate(3, 2, "b"), book.remaining(record)]
    return found


@pytest.mark.parametrize("seed", range(8))
def test_a_restored_book_answers_like_the_one_that_went_on(seed: int) -> None:
    told, rng = History(), random.Random(seed)
    live(told, rng, range(1, 25))
    restored = Book()
    assert restored.restore(told.book.keep())
    assert answers(told, restored) == answers(told, told.book)
    twin = Both(told, restored)
    live(twin, rng, range(25, 40))
    assert answers(told, restored) == answers(told, told.book)


class Both(History):
    """Goes on with a history, and tells a second book too."""

    def __init__(self, told: History, other: Book) -> None:
        self.state, self.book, self.now_s, self.other = told.state, told.book, told.now_s, other

    def tell(self, event: ev.Event) -> None:
        super().tell(event)
        self.other.learn(event)


def test_it_can_be_kept_again_and_is_the_same() -> None:
    told = History()
    live(told, random.Random(1), range(1, 25))
    once = Book()
    assert once.restore(told.book.keep())
    twice = Book()
    assert twice.restore(once.keep())
    assert answers(told, twice) == answers(told, told.book)


def test_bytes_of_another_version_make_an_empty_book() -> None:
    told = History()
    live(told, random.Random(2), range(1, 10))
    kept = told.book.keep()
    for bad in (b"", b"x" + kept[1:], kept[:-20], kept[:16] + b"garbage"):
        book = Book()
        assert not book.restore(bad)
        assert book.keep() == Book().keep()


def test_a_watched_book_keeps_who_has_to_be_alone() -> None:
    watched = WatchedBook(Book())
    watched._interference.alone[7] = None
    other = WatchedBook(Book())
    assert other.restore(watched.keep())
    assert other.alone(7)
    assert not other.restore(b"")
    assert not other.alone(7)


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, ("1 + 1",)


def test_never_runs_what_somebody_put_into_the_bytes() -> None:
    kept = keeping.keep(0)[:16] + pickle.dumps(Evil())
    assert keeping.restore(kept) is None
