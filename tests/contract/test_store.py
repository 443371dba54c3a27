"""What every store must do: in memory, SQLite, PostgreSQL (a real server, started here)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from lives import T0, ended, moving_life, planned, short_life, submitted, two_nodes
from strategies import histories
from swell.core import events as ev
from swell.core.errors import InvalidTransition, StoreError
from swell.core.events import Event
from swell.core.ids import RunId
from swell.core.job import GpuRequest, Launcher
from swell.core.lifecycle import replay
from swell.core.resources import Allocation, Part
from swell.core.state import KEEP_ENDED, JobState, State
from swell.ports import JobQuery, Record, Store, Stored
from swell.store.memory import MemoryStore
from swell.store.open import open_store
from swell.store.sql import SqlStore

AnyStore = MemoryStore | SqlStore


@pytest.fixture
def store(url: str) -> Iterator[AnyStore]:
    opened = open_store(url)
    yield opened
    # the law of the house: whatever a test did, the log makes the state
    assert opened.load() == replay(one.event for one in opened.events())
    opened.close()


def fill(store: Store, events: list[Event], batch: int = 7) -> None:
    first = len(store.events()) + 1
    for start in range(0, len(events), batch):
        store.append(first + start, events[start : start + batch])


def test_it_is_a_store_and_a_record(store: AnyStore) -> None:
    as_store: Store = store
    as_record: Record = store
    assert as_store.load() == State()
    assert as_record.jobs(JobQuery()) == []
    assert as_record.job(1) is None
    assert as_record.runs(1) == []
    assert as_store.events() == []


def test_events_come_back_in_order_with_their_numbers(store: AnyStore) -> None:
    log = [*two_nodes(), *short_life(1), *moving_life(2)]
    fill(store, log)
    assert store.events() == [Stored(seq=seq, event=event) for seq, event in enumerate(log, start=1)]
    assert [one.seq for one in store.events(after_seq=3, limit=2)] == [4, 5]
    assert store.events(after_seq=len(log)) == []
    assert store.events(after_seq=2, limit=0) == []


def test_load_is_replay_with_and_without_a_checkpoint(store: AnyStore) -> None:
    log = [*two_nodes(), *short_life(1), *moving_life(2), submitted(3), submitted(4), planned(4)]
    fill(store, log[:9])
    assert store.load() == replay(log[:9])
    store.checkpoint(store.load())
    fill(store, log[9:])
    state = store.load()
    assert state == replay(log)
    assert list(state.active) == [3, 4]
    assert list(state.ended) == [1, 2]


def test_the_state_that_load_gives_belongs_to_the_caller(store: AnyStore) -> None:
    fill(store, [submitted(1)])
    mine = store.load()
    replay([submitted(2)], mine)
    store.append(2, [submitted(2, user="bob")])
    assert store.load().jobs[2].spec.user == "bob"


def test_never_a_gap_or_a_number_twice(store: AnyStore) -> None:
    fill(store, [submitted(1)])
    for wrong in (1, 3, 0):
        with pytest.raises(StoreError, match="cannot follow event 1"):
            store.append(wrong, [submitted(2)])
    store.append(2, [submitted(2)])
    store.append(3, [])
    assert len(store.events()) == 2


def test_never_an_event_that_the_law_forbids_and_nothing_of_its_batch(store: AnyStore) -> None:
    fill(store, [submitted(1)])
    with pytest.raises(InvalidTransition):
        store.append(2, [submitted(2), ev.JobRemoved(job=1, at_s=T0)])
    assert [one.event for one in store.events()] == [submitted(1)]
    assert store.job(2) is None
    store.append(2, [submitted(2)])
    assert store.load().last_job == 2


def test_never_a_checkpoint_ahead_of_the_log(store: AnyStore) -> None:
    fill(store, [submitted(1)])
    with pytest.raises(StoreError, match="ahead of the log"):
        store.checkpoint(replay([submitted(1), submitted(2)]))


def test_what_cannot_be_written_down_is_refused_and_the_store_goes_on(store: AnyStore) -> None:
    if isinstance(store, MemoryStore):
        pytest.skip("memory writes nothing down")
    with pytest.raises(StoreError, match="cannot be written down"):
        store.append(1, [submitted(1, name="\ud800")])
    store.append(1, [submitted(1, name="with \0 and ' and %s and ?")])
    assert store.load().jobs[1].spec.name == "with \0 and ' and %s and ?"


def test_a_record_is_the_whole_job_in_every_state(store: AnyStore) -> None:
    log = [*short_life(1), *moving_life(2), submitted(3), planned(3), submitted(4)]
    state = State()
    for seq, event in enumerate(log, start=1):
        store.append(seq, [event])
        replay([event], state)
        assert {job: store.job(job) for job in state.jobs} == state.jobs


def test_what_a_training_reports_is_in_its_record_and_its_run(store: AnyStore) -> None:
    run = RunId(1, 1)
    log: list[Event] = [submitted(1), planned(1), ev.RunStarted(run=run, at_s=T0 + 2)]
    log += [
        ev.EpochEnded(run=run, at_s=T0 + 3, epoch=1, epoch_s=1.0, metrics={"loss": 0.5}),
        ev.PriorityChanged(job=1, priority=3, at_s=T0 + 4),
        ev.EpochEnded(run=run, at_s=T0 + 5, epoch=2, epoch_s=1.0, gpu_memory_mib=700, epochs=9),
        ev.CheckpointSeen(run=run, at_s=T0 + 6),
        ended(1),
    ]
    state = State()
    for seq, event in enumerate(log, start=1):
        store.append(seq, [event])
        job = replay([event], state).jobs[1]
        assert store.job(1) == job
        assert store.jobs(JobQuery()) == [job]
        assert store.runs(1) == ([job.run] if job.run else [])
        assert [past.run for past in store.runs_between(T0, T0 + 99, 9)] == store.runs(1)


def test_all_attempts_of_a_job_are_kept(store: AnyStore) -> None:
    fill(store, moving_life(1), batch=100)
    first, second = store.runs(1)
    assert (first.id, second.id) == (RunId(1, 1), RunId(1, 2))
    assert first.exit_reason == ev.ExitReason.STOPPED
    assert first.allocation.nodes == ("n1",)
    assert second == store.load().jobs[1].run


def test_runs_of_any_job_are_found_by_when_they_held_something(store: AnyStore) -> None:
    log = [*two_nodes(), *short_life(1), *moving_life(2)]
    fill(store, log)
    every = store.runs_between(0.0, T0 + 1e6, 100)
    planned_last_first = [past.run.planned_s for past in every]
    assert planned_last_first == sorted(planned_last_first, reverse=True)
    assert {past.run.id for past in every} == {run.id for job in (1, 2) for run in store.runs(job)}
    assert {past.name for past in every} == {job.spec.name for job in store.jobs(JobQuery())}
    assert store.runs_between(0.0, T0 + 1e6, 1) == every[:1]
    for past in every:
        assert past.run.ended_s is not None
        during = (past.run.planned_s + past.run.ended_s) / 2
        assert past in store.runs_between(during, during + 0.001, 100)
        assert past not in store.runs_between(past.run.ended_s + 1, past.run.ended_s + 2, 100)
    assert store.runs_between(0.0, T0 - 1e6, 100) == []


def test_a_run_that_was_resized_in_place_shows_what_it_held_when(store: AnyStore) -> None:
    spec = replace(submitted(1).spec, launcher=Launcher.HOROVOD, gpus=GpuRequest(min=1, max=4))
    first = planned(1)
    grown = Allocation(parts=(Part(node=first.allocation.nodes[0], gpus=(0, 1)),), gpu_type="gpu")
    log = [
        *two_nodes(),
        replace(submitted(1), spec=spec),
        first,
        ev.RunStarted(run=first.run, at_s=first.at_s + 1),
        ev.RunResized(run=first.run, allocation=grown, at_s=first.at_s + 5),
    ]
    fill(store, log)
    (past,) = store.runs_between(0.0, T0 + 1e6, 100)
    assert past.held == ((first.at_s, first.allocation), (first.at_s + 5, grown))


def test_jobs_are_filtered_and_paged_newest_first(store: AnyStore) -> None:
    log = [*short_life(1), submitted(2, user="bob"), submitted(3, batch="b"), planned(3), submitted(4), submitted(5)]
    log.append(ev.JobCancelled(job=5, at_s=T0 + 20))
    fill(store, log)

    def ids(query: JobQuery) -> list[int]:
        return [job.id for job in store.jobs(query)]

    assert ids(JobQuery()) == [5, 4, 3, 2, 1]
    assert ids(JobQuery(limit=2)) == [5, 4]
    assert ids(JobQuery(after=4, limit=2)) == [3, 2]
    assert ids(JobQuery(group="queued")) == [4, 2]
    assert ids(JobQuery(group="running")) == [3]
    assert ids(JobQuery(group="ended")) == [5, 1]
    assert ids(JobQuery(user="bob")) == [2]
    assert ids(JobQuery(batch="b")) == [3]
    assert ids(JobQuery(user="ann", group="queued", after=5)) == [4]
    assert ids(JobQuery(ended_since_s=T0 + 11)) == [5, 4, 3, 2], "job 1 ended 10 s after the beginning"
    assert ids(JobQuery(group="ended", ended_since_s=T0 + 10)) == [5, 1]
    assert ids(JobQuery(ended_since_s=T0 + 21, limit=2, after=4)) == [3, 2]
    with pytest.raises(ValueError, match="no group of jobs 'sleeping'; there are: all, queued, running, ended"):
        ids(JobQuery(group="sleeping"))


def test_jobs_that_ended_before_a_time_are_found_oldest_first(store: AnyStore) -> None:
    fill(store, [*short_life(1), *moving_life(2), submitted(3), *short_life(4), *short_life(30)])
    assert store.ended_before(T0 + 20, 10) == [1, 2, 4]
    assert store.ended_before(T0 + 20, 2) == [1, 2]
    assert store.ended_before(T0 + 10, 10) == []
    assert store.ended_before(T0 + 1000, 10) == [1, 2, 4, 30]


def test_what_ended_jobs_consumed_is_summed_by_user_team_and_state(store: AnyStore) -> None:
    fill(store, [*short_life(1), *short_life(2), submitted(3, user="bob"), submitted(4), *moving_life(5)])
    store.append(store.load().seq + 1, [ev.JobCancelled(job=3, at_s=T0 + 900)])
    ended = [job for job in store.jobs(JobQuery(group="ended")) if job.ended_s is not None]
    by_user = {(one.user, one.state): one for one in store.consumed_since(0.0)}
    assert by_user["ann", JobState.COMPLETED].jobs == 3
    assert by_user["bob", JobState.CANCELLED].jobs == 1
    assert sum(one.gpu_s for one in by_user.values()) == pytest.approx(sum(job.gpu_s for job in ended))
    assert sum(one.ran_s for one in by_user.values()) == pytest.approx(sum(job.ran_s for job in ended))
    assert sum(one.gpu_s for one in by_user.values()) > 0
    assert [one.user for one in store.consumed_since(T0 + 800)] == ["bob"]
    assert store.consumed_since(T0 + 1000) == []


def test_a_removed_job_is_gone_from_the_record(store: AnyStore) -> None:
    fill(store, [*moving_life(1), *short_life(2), ev.JobRemoved(job=1, at_s=T0 + 50)])
    assert store.job(1) is None
    assert store.runs(1) == []
    assert [job.id for job in store.jobs(JobQuery())] == [2]
    # also when it came and went in one batch
    last = len(store.events())
    store.append(last + 1, [*short_life(3), ev.JobRemoved(job=3, at_s=T0 + 51)])
    assert store.job(3) is None
    assert store.runs(3) == []


def test_ended_jobs_that_memory_forgets_stay_in_the_record(store: AnyStore) -> None:
    many = KEEP_ENDED + 5
    log = [one for job in range(1, many + 1) for one in (submitted(job), ev.JobCancelled(job=job, at_s=T0 + job))]
    store.append(1, log)
    assert 1 not in store.load().jobs
    forgotten = store.job(1)
    assert forgotten is not None
    assert forgotten.state is JobState.CANCELLED
    assert [job.id for job in store.jobs(JobQuery(after=3))] == [2, 1]


def test_reading_from_other_threads_while_one_writes(store: AnyStore) -> None:
    wrong: list[str] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            seen = store.events(limit=10_000)
            jobs = {job.id for job in store.jobs(JobQuery(limit=10_000))}
            if any(one.event.job not in jobs for one in seen if isinstance(one.event, ev.JobSubmitted)):
                wrong.append("an event is visible before its row")

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    fill(store, [event for job in range(1, 41) for event in short_life(job)], batch=5)
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert len(store.events()) == 200


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(log=histories(max_events=60))
def test_any_lawful_log_is_its_state_and_its_record(request: pytest.FixtureRequest, url: str, log: list[Event]) -> None:
    fresh = url if url == "memory://" else _another(request, url)
    opened = open_store(fresh)
    try:
        fill(opened, log, batch=4)
        half = opened.load()
        assert half == replay(log)
        opened.checkpoint(half)
        assert opened.load() == half
        assert {job.id: job for job in opened.jobs(JobQuery(limit=1000))} == half.jobs
        assert [opened.runs(job.id)[-1] for job in half.jobs.values() if job.run] == [
            job.run for job in half.jobs.values() if job.run
        ]
    finally:
        opened.close()


def _another(request: pytest.FixtureRequest, url: str) -> str:
    if url.startswith("sqlite"):
        _another.count = getattr(_another, "count", 0) + 1  # type: ignore[attr-defined]
        return f"{url}.{_another.count}"  # type: ignore[attr-defined]
    return str(request.getfixturevalue("postgres").new_database())


def test_a_stale_report_is_in_the_log_and_nowhere_else(store: AnyStore) -> None:
    fill(store, moving_life(1))
    before = store.job(1)
    late = replace(ended(1, 1), at_s=T0 + 99)
    store.append(len(moving_life(1)) + 1, [late])
    assert store.events()[-1].event == late
    assert store.job(1) == before


def test_a_cluster_has_an_id_and_its_writer_an_epoch(store: AnyStore) -> None:
    assert len(store.cluster_id) == 16
    assert store.epoch >= 1
