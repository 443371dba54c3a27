"""Files of removed jobs are deleted, whatever got in between; those of no other job are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from unittest.mock import AsyncMock, Mock

import pytest

from swell.core import events as ev
from swell.core.errors import StoreError
from swell.core.ids import JobId
from swell.core.job import JobSpec
from swell.core.state import State
from swell.daemon.cleanup import MAX_TRIES, Cleanup
from swell.ports import Answer, Done, Executor, Refused
from swell.store.memory import MemoryStore

SPEC = JobSpec(name="j", command=("true",))
DENIED = Refused(why="Permission denied: /x/1", errno=13)


def store_of(jobs: int, removed: Sequence[JobId] = ()) -> MemoryStore:
    store = MemoryStore()
    for job in range(1, jobs + 1):
        submitted, cancelled = ev.JobSubmitted(job=job, spec=SPEC, at_s=0.0), ev.JobCancelled(job=job, at_s=1.0)
        store.append(2 * job - 1, [submitted, cancelled])
    store.append(2 * jobs + 1, [ev.JobRemoved(job=job, at_s=2.0) for job in removed])
    return store


def cleaned(record: MemoryStore | Mock, state: State, *, kept: Sequence[JobId], told: Sequence[ev.Event] = ()) -> Mock:
    executor = Mock(spec=Executor, remove=AsyncMock(return_value=Done()))

    async def play() -> None:
        cleanup = Cleanup(executor, record, lambda: state)
        cleanup.found(kept)
        work = asyncio.create_task(cleanup.run())
        cleanup.happened(told)
        while cleanup.under_way:
            await asyncio.sleep(0)
        work.cancel()

    asyncio.run(play())
    return executor


def deleted(executor: Mock) -> list[JobId]:
    return [call.args[0] for call in executor.remove.await_args_list]


def test_never_deletes_files_of_a_job_that_was_not_removed_here() -> None:
    store = store_of(5, removed=(2, 4))
    state = store.load()
    del state.jobs[1]  # ended so long ago that only the store has it
    # 3 and 5 are in memory; 6 and 9 were never given by this database, whoever has written them
    assert deleted(cleaned(store, state, kept=[1, 2, 3, 4, 5, 6, 9])) == [2, 4]


def test_never_deletes_files_under_an_id_that_was_skipped() -> None:
    store = store_of(2, removed=(1,))
    store.append(6, [ev.IdsSkipped(through=7, at_s=3.0), ev.JobSubmitted(job=8, spec=SPEC, at_s=4.0)])
    assert deleted(cleaned(store, store.load(), kept=[1, 2, 3, 7, 8])) == [1]


def test_a_removal_is_carried_out_once_it_is_durable() -> None:
    store = store_of(3, removed=(2,))
    told: list[ev.Event] = [ev.JobRemoved(job=2, at_s=2.0), ev.JobCancelled(job=3, at_s=3.0)]
    assert deleted(cleaned(store, store.load(), kept=[], told=told)) == [2]


def test_never_deletes_when_the_record_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    record = Mock()
    record.job.side_effect = StoreError("the disk is gone")
    with caplog.at_level(logging.WARNING):
        assert deleted(cleaned(record, State(last_job=9), kept=[1])) == []
    assert "the disk is gone" in caplog.text


def test_what_cannot_be_deleted_does_not_keep_the_next_from_being(caplog: pytest.LogCaptureFixture) -> None:
    store = store_of(2, removed=(1, 2))
    with caplog.at_level(logging.WARNING):
        executor, cleanup = retried(store, [DENIED, Done(), DENIED, Done()], kept=[1, 2], calls=4)
    assert deleted(executor) == [1, 2, 1, 1]
    assert cleanup.undeleted == {}
    assert "job 1" in caplog.text
    assert "/x/1" in caplog.text


def test_what_cannot_be_deleted_is_tried_again_and_not_for_ever() -> None:
    executor, cleanup = retried(store_of(1, removed=(1,)), [DENIED] * MAX_TRIES, kept=[1], calls=MAX_TRIES)
    assert deleted(executor) == [1] * MAX_TRIES
    (found,) = cleanup.undeleted.values()
    assert (found.job, found.tries, found.given_up) == (1, MAX_TRIES, True)
    assert "/x/1" in found.why


def retried(
    store: MemoryStore, outcome: Sequence[Answer], *, kept: Sequence[JobId], calls: int
) -> tuple[Mock, Cleanup]:
    """Without waiting in between; a while longer than it takes to be told so many times."""
    executor = Mock(spec=Executor, remove=AsyncMock(side_effect=outcome))
    cleanup = Cleanup(executor, store, store.load, retry_s=0.0)
    cleanup.found(kept)

    async def play() -> None:
        work = asyncio.create_task(cleanup.run())
        while executor.remove.await_count < calls:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        work.cancel()

    asyncio.run(play())
    return executor, cleanup
