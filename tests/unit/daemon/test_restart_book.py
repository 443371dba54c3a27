"""What was learned of speeds outlives the daemon: after a stop and a start the next plan is the one it would have made.

After a kill the book is that of the last checkpoint and learns the events since then anew: the same measurements,
fitted at once instead of one pass after the other."""

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
    """Two jobs at a time train, each for its epochs, and are stopped; none finishes."""
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
            )
            for epoch in range(1, epochs + 1)
        ]
        yield [
            ev.RunStopRequested(run=run, why=ev.StopWhy.PREEMPTED, at_s=at_s + epochs),
            ev.RunEnded(run=run, reason=ev.ExitReason.STOPPED, at_s=at_s + epochs),
        ]


def plan_of(state: State, book: WatchedBook) -> Plan:
    snapshot, _ = Snapshotter(book).take(state, T0 + 1e6, Options())
    return cycle(snapshot, policy_named("swell"), placer_named("consolidated"), state.policy_memory, random.Random(1))


async def opened(store: Store) -> tuple[Committer, WatchedBook]:
    book = WatchedBook(Book())
    committer = Committer(store, Journal(store), book)
    await committer.open()
    return committer, book


async def live(committer: Committer, book: WatchedBook, batches: Sequence[list[Event]], ask_every: int) -> None:
    for number, batch in enumerate(batches):
        await committer.commit(batch)
        if number % ask_every == 0:
            plan_of(committer.state, book)


def restarted(store: Store, batches: Sequence[list[Event]], ask_every: int = 3) -> tuple[Plan, Plan]:
    """The plan that would have come next, and the one after a stop and a start."""

    async def main() -> tuple[Plan, Plan]:
        committer, book = await opened(store)
        await live(committer, book, batches, ask_every)
        await committer.close()
        before = plan_of(committer.state, book)
        committer, book = await opened(store)
        return before, plan_of(committer.state, book)

    return asyncio.run(main())


def test_a_restart_makes_the_plan_that_would_have_come_next(tmp_path: Path) -> None:
    with closing(open_store(f"sqlite:///{tmp_path / 'swell.db'}")) as store:
        before, after = restarted(store, list(training(jobs=40, epochs=6)))
    assert before == after
    assert before.starts


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_also_after_200_000_events(tmp_path: Path) -> None:
    with closing(open_store(f"sqlite:///{tmp_path / 'swell.db'}")) as store:
        batches = list(training(jobs=500, epochs=400))
        assert sum(map(len, batches)) > 200_000
        before, after = restarted(store, batches, ask_every=200)
    assert before == after


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
