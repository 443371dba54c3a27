"""What the store is measured by: durable writes, one by one and together; starting again; looking things up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from figures import record
from lives import short_life, submitted
from swell.core.events import Event
from swell.core.state import copy_of
from swell.ports import JobQuery
from swell.store import codec
from swell.store.journal import Journal
from swell.store.memory import MemoryStore
from swell.store.open import open_store
from swell.store.sql import SqlStore

pytestmark = pytest.mark.perf

JOBS = 40_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore | SqlStore]:
    with closing(open_store(f"sqlite:///{tmp_path / 'swell.db'}")) as opened:
        yield opened


def test_durable_events_in_batches_of_100_and_starting_again(store: SqlStore) -> None:
    log = [event for job in range(1, JOBS + 1) for event in short_life(job)]
    began = time.perf_counter()
    for start in range(0, len(log), 100):
        store.append(start + 1, log[start : start + 100])
    figures = {"events_per_s_in_batches_of_100": len(log) / (time.perf_counter() - began)}

    began = time.process_time()
    state = store.load()
    figures["load_200000_events_cpu_s"] = time.process_time() - began
    began = time.perf_counter()
    copy_of(state)
    figures["checkpoint_caller_ms"] = 1000 * (time.perf_counter() - began)
    began = time.process_time()
    store.checkpoint(state)
    figures["checkpoint_cpu_s"] = time.process_time() - began
    began = time.process_time()
    assert store.load() == state
    figures["load_with_checkpoint_cpu_s"] = time.process_time() - began
    record("store", figures)


def test_a_burst_of_1000_submissions_is_one_quick_transaction(store: SqlStore) -> None:
    burst: list[Event] = [submitted(job) for job in range(1, 1001)]
    began = time.perf_counter()
    store.append(1, burst)
    record("store", {"burst_of_1000_submissions_s": time.perf_counter() - began})


def test_reading_an_event(store: SqlStore) -> None:
    bodies = [(type(event).__name__, codec.encode(event)) for job in range(1, 2001) for event in short_life(job)]
    began = time.process_time()
    for kind, body in bodies:
        codec.decode(kind, body)
    record("store", {"decode_us_per_event": 1e6 * (time.process_time() - began) / len(bodies)})


def test_a_page_of_10000_queued_jobs(store: SqlStore) -> None:
    store.append(1, [submitted(job) for job in range(1, 10_001)])
    times: list[float] = []
    for page in range(100):
        began = time.perf_counter()
        assert len(store.jobs(JobQuery(group="queued", after=10_001 - 99 * page, limit=100))) == 100
        times.append(time.perf_counter() - began)
    record("store", {"page_of_100_jobs_p99_ms": 1000 * sorted(times)[98]})


@pytest.mark.parametrize("clients", [1, 32])
def test_durable_appends_through_the_journal(store: SqlStore, clients: int) -> None:
    async def main() -> float:
        journal = Journal(store)
        await journal.recover()
        job = 0

        async def client(count: int) -> None:
            nonlocal job
            for _ in range(count):
                job += 1
                await journal.append([submitted(job)])

        began = time.perf_counter()
        await asyncio.gather(*(client(2000 // clients) for _ in range(clients)))
        took = time.perf_counter() - began
        await journal.close()
        return job / took

    record("store", {f"journal_appends_per_s_with_{clients}_clients": asyncio.run(main())})
