"""What the store is measured by: durable writes, one by one and together; starting again; looking things up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from figures import record
from lives import T0, planned, short_life, submitted
from swell.core import events as ev
from swell.core.events import Event
from swell.core.ids import RunId
from swell.core.state import copy_of
from swell.daemon.compaction import compaction
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


@pytest.mark.parametrize("env_bytes", [1_500, 12_000])
def test_an_epoch_of_a_running_job(store: SqlStore, tmp_path: Path, env_bytes: int) -> None:
    """One event per commit, as a lone training reports: what goes to the write-ahead log, and CPU time."""
    env = {f"VARIABLE_{number}": "x" * 60 for number in range(env_bytes // 75)}
    store.append(1, [submitted(1, env=env), planned(1), ev.RunStarted(run=RunId(1, 1), at_s=T0 + 3)])
    epochs = [
        ev.EpochEnded(run=RunId(1, 1), at_s=T0 + 3 + epoch, epoch=epoch, epoch_s=1.0, metrics={"loss": 1.0 / epoch})
        for epoch in range(1, 81)  # fewer than fill the log, which would begin anew
    ]
    wal = tmp_path / "swell.db-wal"
    before, began = wal.stat().st_size, time.process_time()
    for seq, event in enumerate(epochs, start=4):
        store.append(seq, [event])
    cpu_s = time.process_time() - began
    figures = {
        f"wal_bytes_per_epoch_with_{env_bytes}_bytes_of_environment": (wal.stat().st_size - before) / len(epochs),
        f"cpu_us_per_epoch_with_{env_bytes}_bytes_of_environment": 1e6 * cpu_s / len(epochs),
    }
    record("store", figures)


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


def test_removing_old_events_while_others_write(store: SqlStore, tmp_path: Path) -> None:
    """100,000 events with two checkpoints; one client appends as fast as it can while the first half is removed."""
    log = [event for job in range(1, 20_001) for event in short_life(job)]
    for start in range(0, len(log), 50_000):
        store.append(start + 1, log[start : start + 50_000])
        store.checkpoint(store.load(), b"a book")
    size = (tmp_path / "swell.db").stat().st_size + (tmp_path / "swell.db-wal").stat().st_size

    async def main() -> tuple[list[float], float]:
        journal, waited, seen = Journal(store), [], 0
        await journal.recover()
        began = time.process_time()
        removing = asyncio.create_task(compaction(store, FixedClock(2 * T0), keep_days=1.0, pause_s=0.005).once())
        while not removing.done():
            seen += 1
            began_s = time.perf_counter()
            await journal.append([submitted(20_000 + seen)])
            waited.append(time.perf_counter() - began_s)
            await asyncio.sleep(0.002)
        assert removing.result() == 50_000
        await journal.close()
        return sorted(waited), time.process_time() - began

    waited, cpu_s = asyncio.run(main())
    figures = {
        "append_p50_ms_while_events_are_removed": 1000 * waited[len(waited) // 2],
        "append_p99_ms_while_events_are_removed": 1000 * waited[int(0.99 * len(waited))],
        "append_longest_ms_while_events_are_removed": 1000 * waited[-1],
        "bytes_per_event_before_removal": size / len(log),
        "removing_and_appending_cpu_us_per_removed_event": 1e6 * cpu_s / 50_000,
    }
    record("store", figures)


class FixedClock:
    def __init__(self, at_s: float) -> None:
        self._at_s = at_s

    def now_s(self) -> float:
        return self._at_s

    def monotonic_s(self) -> float:
        return self._at_s
