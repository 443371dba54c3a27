"""Ended jobs go after so many days, and only then."""

from __future__ import annotations

import asyncio

import pytest

from lives import T0, short_life, submitted
from swell.core import events as ev
from swell.core.errors import Conflict, StoreError
from swell.core.ids import JobId
from swell.daemon.hourly import DAY_S
from swell.daemon.retention import retention
from swell.store.memory import MemoryStore


class Days:
    def __init__(self, days: float) -> None:
        self._now_s = T0 + days * DAY_S

    def now_s(self) -> float:
        return self._now_s

    def monotonic_s(self) -> float:
        return self._now_s


class Cluster:
    """Jobs 1 to 250 have ended at once, job 251 waits."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.wanted: set[JobId] = set()
        self.removed: list[JobId] = []
        log = [*(event for job in range(1, 251) for event in short_life(job)), submitted(251)]
        self.store.append(1, log)
        self.seq = len(log)

    async def remove(self, job: JobId) -> None:
        if job in self.wanted:
            raise Conflict(f"job {job} cannot be removed yet")
        self.seq += 1
        self.store.append(self.seq, [ev.JobRemoved(job=job, at_s=T0)])
        self.removed.append(job)

    def after(self, days: float, keep_days: float) -> list[JobId]:
        removing = retention(self.store, self.remove, Days(days), keep_days=keep_days, pause_s=0.0)
        assert asyncio.run(removing.once()) == len(self.removed)
        return self.removed


def test_never_removes_anything_unless_it_was_set() -> None:
    assert Cluster().after(10_000, 0.0) == []


def test_never_before_its_time() -> None:
    assert Cluster().after(29.9, 30.0) == []


def test_all_that_ended_long_ago_go_and_nothing_else() -> None:
    cluster = Cluster()
    assert cluster.after(31, 30.0) == list(range(1, 251))
    assert list(cluster.store.load().jobs) == [251]


def test_never_one_that_another_job_wants() -> None:
    cluster = Cluster()
    cluster.wanted = {3, 200}
    assert set(cluster.after(31, 30.0)) == set(range(1, 251)) - {3, 200}
    assert set(cluster.store.load().jobs) == {3, 200, 251}


def test_a_store_that_does_not_work_is_tried_again_later(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()

    async def refuse(job: JobId) -> None:
        raise StoreError("full")

    assert asyncio.run(retention(cluster.store, refuse, Days(31), keep_days=30.0, pause_s=0.0).once()) == 0
    assert "tried again in an hour: full" in caplog.text
