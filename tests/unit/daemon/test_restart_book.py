"""What was learned of speeds outlives the daemon: after a stop or a kill and a start, the next plan is the one that it
would have made. After a kill the book is that of the last checkpoint and learns the events since then, among which each
fit has its place."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from lives import T0, two_nodes
from swell.core import events as ev
from swell.core.decision import Plan
from swell.core.events import Event
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec
from swell.core.resources import Allocation, Part
from swell.core.snapshot import Options
from swell.core.state import State
from swell.daemon import committer as module
from swell.daemon.committer import Committer
from swell.placement.interference import WatchedBook
from swell.placement.registry import placer_named
from swell.plan.cycle import cycle
from swell.plan.snapshotter import Snapshotter
from swell.policy.registry import policy_named
from swell.ports import Store
from swell.speed.book import Book
from swell.store.journal import Journal
from swell.store.open import open_store

NODES = {"gpu": 2}


def training(jobs: int, epochs: int, seed: int = 0) -> Iterator[list[Event]]:
    """Two jobs at a time train, each for its epochs, and are stopped; a fifth finish. Families 0 to 2 adapt their batch
    sizes."""
    rng = random.Random(seed)
    yield list(two_nodes())
    for job in range(1, jobs + 1):
        spec = JobSpec(
            name=f"j{job}",
            command=("x",),
            family=f"f{job % 7}",
            uses_library=True,
            epochs=10 * epochs,
            gpus=GpuRequest(min=1, max=2),
        )
        at_s, run, gpus = T0 + 10 * job, RunId(job, 1), rng.choice((1, 2))
        part = Part(node=f"n{job % 2 + 1}", gpus=tuple(range(gpus)), cpus=1)
        yield [
            ev.JobSubmitted(job=job, spec=spec, at_s=at_s),
            ev.RunPlanned(run=run, allocation=Allocation(parts=(part,), gpu_type="gpu"), at_s=at_s),
            ev.RunStarted(run=run, at_s=at_s),
        ]
        epoch_s = rng.uniform(5.0, 50.0) / gpus
        yield [
            ev.EpochEnded(
                run=run,
                at_s=at_s + epoch,
                epoch=epoch,
                epoch_s=epoch_s * rng.uniform(0.9, 1.1),
                gpus=gpus,
                nodes=1,
                gpu_type="gpu",
                step_s=epoch_s / 100,
                goodput=3000.0 * gpus,
                batching=adapted(gpus, epoch) if job % 7 < 3 else None,
            )
            for epoch in range(1, epochs + 1)
        ]
        if job % 5 == 0:
            yield [ev.RunEnded(run=run, reason=ev.ExitReason.FINISHED, at_s=at_s + epochs)]
            continue
        yield [
            ev.RunStopRequested(run=run, why=ev.StopWhy.PREEMPTED, at_s=at_s + epochs),
            ev.RunEnded(run=run, reason=ev.ExitReason.STOPPED, at_s=at_s + epochs),
        ]


def adapted(gpus: int, epoch: int) -> ev.Batching:
    return ev.Batching(initial=32, largest=512, local=32 + epoch, local_max=128, sync_s=0.001 * gpus)


def plan_of(state: State, book: WatchedBook) -> Plan:
    snapshot, _ = Snapshotter(book).take(state, T0 + 1e6, Options())
    return cycle(snapshot, policy_named("swell"), placer_named("consolidated"), state.policy_memory, random.Random(1))


Decided = tuple[Plan, list[object]]


def decided(state: State, book: WatchedBook) -> Decided:
    """The next plan, and all that it rests on of speeds: a difference there is one in some later plan."""
    plan = plan_of(state, book)
    active = [state.jobs[job] for job in state.active]
    speeds = [[book.speed(record, NODES).rate(gpus, 1, "gpu") for gpus in (1, 2)] for record in active]
    return plan, [speeds, [book.remaining(record) for record in active]]


async def opened(store: Store) -> tuple[Committer, WatchedBook]:
    book = WatchedBook(Book(fits_on_ask=False))
    committer = Committer(store, Journal(store), book)
    await committer.open()
    return committer, book


async def live(committer: Committer, book: WatchedBook, batches: Sequence[list[Event]], ask_every: int) -> None:
    for number, batch in enumerate(batches):
        await committer.commit(batch)
        if number % ask_every == 0:
            await committer.fit_speeds(T0)
            plan_of(committer.state, book)


def restarted(
    store: Store, batches: Sequence[list[Event]], ask_every: int = 3, *, killed: bool = False
) -> tuple[Decided, Decided]:
    """What would have been decided next, and what is after a stop (or a kill) and a start."""

    async def main() -> tuple[Decided, Decided]:
        committer, book = await opened(store)
        half = len(batches) // 2
        await live(committer, book, batches[:half], ask_every)
        if killed:
            await committer._checkpoint()  # the last one before the kill: half of the log comes after it
        await live(committer, book, batches[half:], ask_every)
        if not killed:
            await committer.close()
        again, read_back = await opened(store)
        assert again.state.seq == committer.state.seq
        for one in (book, read_back):
            one.learn(ev.SpeedsFitted(at_s=T0))  # as the next pass would begin
        return decided(committer.state, book), decided(again.state, read_back)

    return asyncio.run(main())


def test_a_restart_makes_the_plan_that_would_have_come_next(tmp_path: Path) -> None:
    with closing(open_store(f"sqlite:///{tmp_path / 'swell.db'}")) as store:
        before, after = restarted(store, list(training(jobs=40, epochs=6)))
    assert before == after
    assert before[0].starts


@pytest.mark.parametrize("ask_every", [1, 3, 50])
def test_a_kill_makes_the_plan_that_would_have_come_next(tmp_path: Path, ask_every: int) -> None:
    with closing(open_store(f"sqlite:///{tmp_path / 'swell.db'}")) as store:
        before, after = restarted(store, list(training(jobs=40, epochs=6)), ask_every, killed=True)
    assert before == after
    assert before[0].starts


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("killed", [False, True])
def test_also_after_200_000_events(tmp_path: Path, killed: bool) -> None:
    with closing(open_store(f"sqlite:///{tmp_path / 'swell.db'}")) as store:
        batches = list(training(jobs=500, epochs=400))
        assert sum(map(len, batches)) > 200_000
        before, after = restarted(store, batches, ask_every=200, killed=killed)
    assert before == after


def test_who_looks_at_speeds_changes_no_decision(tmp_path: Path) -> None:
    """A listing asks the same book that decisions rest on."""

    async def main(store: Store, looks: bool) -> Decided:
        committer, book = await opened(store)
        for number, batch in enumerate(training(jobs=30, epochs=6)):
            await committer.commit(batch)
            for record in committer.state.jobs.values() if looks else ():
                book.describe(record, NODES)
            if number % 20 == 0:
                await committer.fit_speeds(T0)
        await committer.fit_speeds(T0)
        return decided(committer.state, book)

    plans = []
    for looks in (False, True):
        with closing(open_store(f"sqlite:///{tmp_path / f'{looks}.db'}")) as store:
            plans.append(asyncio.run(main(store, looks)))
    assert plans[0] == plans[1]


def test_after_a_kill_every_measurement_since_the_checkpoint_is_learned_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = list(training(jobs=20, epochs=6))

    async def main(store: Store) -> None:
        committer, book = await opened(store)
        await live(committer, book, batches[:30], ask_every=3)
        await committer._checkpoint()
        await live(committer, book, batches[30:], ask_every=3)
        _, again = await opened(store)  # killed: nothing was closed
        learned = measurements(committer.state, book)
        assert measurements(committer.state, again) == learned
        assert any(learned)

    monkeypatch.setattr(module, "BOOK_PAGE", 7)
    with closing(open_store(f"sqlite:///{tmp_path / 'swell.db'}")) as store:
        asyncio.run(main(store))


def measurements(state: State, book: WatchedBook) -> list[object]:
    """As they were reported; not what was fitted to them."""
    described = [book.describe(record, NODES) for record in state.jobs.values() if not record.ended]
    return [[(one.gpus, one.epochs, one.epoch_s, one.spread) for one in known.points] for known in described]
