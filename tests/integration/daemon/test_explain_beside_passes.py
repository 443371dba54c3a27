"""Explanations, what-if and live decisions at the same time: nothing mutable is shared between them."""

from __future__ import annotations

import asyncio
import logging

import pytest

from swell.core.job import GpuRequest, JobSpec, Preemptible
from swell.daemon.clock import SystemClock
from swell.daemon.committer import Committer
from swell.daemon.engine import Engine, Settings
from swell.daemon.passes import Timing
from swell.executors.scripted import Script, ScriptedExecutor, Theatre
from swell.plan.explain import Explanation
from swell.ports import Launch, Order, Worker
from swell.sim.cluster import parse_cluster
from swell.sim.forecast import Change
from swell.speed.book import Book
from swell.speed.families import family_of
from swell.store.journal import Journal
from swell.store.memory import MemoryStore

JOBS = 1500
"""A policy forgets its cache of more than 1000 jobs when it is asked about few: so explanations broke live passes."""


def prepare(order: Order) -> Launch:
    record = order.record
    assert record.run is not None
    worker = Worker(rank=0, node=record.run.allocation.nodes[0], argv=record.spec.command, env={}, cwd="/")
    return Launch(run=record.run.id, workers=(worker,), grace_s=1.0)


def engine_with(nodes: str, book: Book) -> Engine:
    clock, store = SystemClock(), MemoryStore()
    theatre = Theatre(nodes=parse_cluster(nodes))
    return Engine(
        committer=Committer(store, Journal(store), book),
        record=store,
        executor=ScriptedExecutor(theatre, clock, lambda _, __: Script(lasts_s=1e9), prepare),
        book=book,
        clock=clock,
        settings=Settings(policy="swell", timing=Timing(interval_s=0.01, coalesce_s=0.0)),
    )


def spec(number: int) -> JobSpec:
    name = f"family{number % 40}"
    gpus = GpuRequest(min=1 + number % 3, max=4 + number % 5)
    return JobSpec(name=name, command=(name,), gpus=gpus, preemptible=Preemptible.RESTART)


async def decided(engine: Engine, passes: int) -> None:
    """Until there were so many more passes."""
    until = int(str(engine.health()["passes"])) + passes
    async with asyncio.timeout(60):
        while int(str(engine.health()["passes"])) < until:
            await asyncio.sleep(0.001)


def test_explain_and_what_if_beside_live_passes(caplog: pytest.LogCaptureFixture) -> None:
    """Live passes run while many explanations and comparisons are made: each is answered, no pass fails."""

    async def scene() -> list[Explanation]:
        engine = engine_with("4x4", Book())
        await engine.start()
        try:
            await decided(engine, 1)
            jobs = await engine.submit([spec(number) for number in range(JOBS)])
            await decided(engine, 1)
            found: list[Explanation] = []

            async def explain(first: int) -> None:
                for number in range(4):
                    found.append(await engine.explain(jobs[first + 30 * number]))

            async def submit() -> None:
                for number in range(10):
                    await engine.submit([spec(number)])
                    await decided(engine, 1)

            explaining = [explain(first) for first in range(JOBS - 200, JOBS - 190)]
            await asyncio.gather(*explaining, submit(), engine.what_if(Change(submit=(spec(1),))))
            async with asyncio.timeout(60):
                while found[-1].missing:  # what is not there at once is there when asked again
                    await asyncio.sleep(0.01)  # an answer from memory suspends nothing: others must get their turn
                    found.append(await engine.explain(jobs[-1]))
            return found
        finally:
            await engine.stop()

    with caplog.at_level(logging.WARNING):
        found = asyncio.run(scene())
    assert len(found) >= 40
    assert all(one.sentences for one in found)
    assert found[-1].advice
    assert not [record.getMessage() for record in caplog.records if record.name.startswith("swell.")]


def test_what_if_never_teaches_the_live_book_a_job_that_does_not_exist() -> None:
    async def scene() -> None:
        book = Book()
        engine = engine_with("1x2", book)
        await engine.start()
        try:
            await decided(engine, 1)
            await engine.submit([spec(0), spec(0)])
            await engine.what_if(Change(submit=(spec(7), spec(8))))
            [job] = await engine.submit([spec(9)])
            record = engine.state.jobs[job]
            await engine.explain(job)
            book.remaining(record)
            home = book._jobs[job].home
            assert home is not None
            assert home.name == family_of(record.spec), "it is not taken for the one that was only talked about"
            assert set(book._jobs) <= set(engine.state.jobs)
        finally:
            await engine.stop()

    asyncio.run(scene())
