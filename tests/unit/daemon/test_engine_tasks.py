"""Every background task of the engine is killed in turn: it is shown, started again, and the engine does its work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest

from swell.core.errors import StoreError
from swell.core.job import GpuRequest, JobSpec
from swell.core.resources import Gpu, Node
from swell.core.state import JobState
from swell.daemon import committer as committing
from swell.daemon import engine as module
from swell.daemon.committer import Committer
from swell.daemon.engine import Engine, Settings
from swell.daemon.health import DECIDES
from swell.daemon.passes import Timing
from swell.daemon.supervisor import Supervisor
from swell.executors.scripted import Script, ScriptedExecutor, Theatre
from swell.ports import Launch, Order, Worker
from swell.speed.book import Book
from swell.store.journal import Journal
from swell.store.memory import MemoryStore

NAMES = (
    "recovery",
    "checkpoints",
    "watch",
    "contacts",
    "passes",
    "forecasts",
    "logs",
    "training checkpoints",
    "cleanup",
    "idle GPUs",
    "outputs",
    "ids",
)
NODE = Node(name="n1", gpus=(Gpu(index=0), Gpu(index=1)), cpus=8, memory_mib=8192)


class RealClock:
    def now_s(self) -> float:
        return 1e6 + asyncio.get_running_loop().time()

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()


def prepare(order: Order) -> Launch:
    record = order.record
    assert record.run is not None
    worker = Worker(rank=0, node="n1", argv=record.spec.command, env={}, cwd="/")
    return Launch(run=record.run.id, workers=(worker,), grace_s=record.spec.grace_s)


class World:
    """An engine on a store and a machine in memory, with the executor's time moved on by `until`."""

    def __init__(self, script: Script | None = None) -> None:
        clock, self.store = RealClock(), MemoryStore()
        script = script or Script(lasts_s=0.0)
        self.executor = ScriptedExecutor(Theatre(nodes=(NODE,)), clock, lambda *_: script, prepare)
        self.engine = Engine(
            committer=Committer(self.store, Journal(self.store), book := Book()),
            record=self.store,
            executor=self.executor,
            book=book,
            clock=clock,
            settings=Settings(policy="fifo", timing=Timing(interval_s=0.01, coalesce_s=0.0)),
        )

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self.executor.tick()
                await asyncio.sleep(0.001)

    async def does_its_work(self) -> None:
        spec = JobSpec(name="j", command=("true",), gpus=GpuRequest(min=1, max=1))
        [job] = await self.engine.submit([spec])
        await self.until(lambda: self.engine.state.jobs[job].state is JobState.COMPLETED)


@asynccontextmanager
async def world(script: Script | None = None) -> AsyncIterator[World]:
    one = World(script)
    await one.engine.start()
    await one.until(lambda: one.engine.state.nodes)
    yield one
    await one.engine.stop()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Supervisor", partial(Supervisor, first_pause_s=0.01))
    monkeypatch.setattr(committing, "FIRST_RETRY_S", 0.001)


def test_these_are_all_tasks_and_none_is_beside_the_group() -> None:
    async def main() -> None:
        before = asyncio.all_tasks()
        async with world() as one:
            assert one.engine.tasks.names == NAMES
            keepers = {f"keep {name}" for name in NAMES}

            def beside() -> set[str]:
                ours = {one.engine.tasks.current(name) for name in NAMES}
                return {task.get_name() for task in asyncio.all_tasks() - before if task not in ours} - keepers

            await one.until(lambda: not beside())  # what is under way at the start comes to its end

    asyncio.run(main())


@pytest.mark.parametrize("name", NAMES)
def test_a_task_that_is_killed_is_shown_and_runs_again(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with world() as one:
            tasks = one.engine.tasks
            killed = tasks.current(name)
            assert killed is not None
            killed.cancel()
            await one.until(lambda: tasks.down(name))
            health = one.engine.health()
            assert health["ready"] is (name not in DECIDES)
            assert f"the task {name} died" in str(health["degraded"])
            await one.until(lambda: tasks.current(name) not in (None, killed))
            health = one.engine.health()
            assert (health["ready"], health["degraded"]) == (True, "")
            assert health["tasks"] == [
                {"name": name, "down": False, "deaths": 1, "why": "CancelledError: it was cancelled from outside"}
            ]
            await one.does_its_work()

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert f"task {name} died" in caplog.text


def test_runs_that_end_in_an_outage_are_recorded_after_it_though_watch_dies_in_it_too() -> None:
    async def main() -> None:
        async with world(Script(lasts_s=1.0)) as one:  # long enough to be seen, and to end in the outage
            spec = JobSpec(name="j", command=("true",), gpus=GpuRequest(min=1, max=1))
            [job] = await one.engine.submit([spec])
            await one.until(lambda: one.engine.state.jobs[job].holding)

            def refuse(*_: object, **__: object) -> None:
                raise StoreError("away")

            whole = one.store.append, one.store.prove_writable
            one.store.append, one.store.prove_writable = refuse, refuse  # type: ignore[method-assign]
            await one.until(lambda: not one.engine.health()["ready"])
            for _ in range(20):
                one.executor.tick()
                await asyncio.sleep(0)
            watch = one.engine.tasks.current("watch")
            assert watch is not None
            watch.cancel()
            await one.until(lambda: one.engine.tasks.current("watch") not in (None, watch))
            one.store.append, one.store.prove_writable = whole  # type: ignore[method-assign]
            await one.until(lambda: one.engine.health()["ready"])
            await one.until(lambda: one.engine.state.jobs[job].state is JobState.COMPLETED)
            assert one.engine.state.jobs[job].attempts == 1

    asyncio.run(main())


def test_slots_that_are_declared_are_recorded_at_once() -> None:
    async def main() -> None:
        async with world() as one:

            async def declare(gpus: int | None) -> Node:
                return replace(NODE, gpus=tuple(Gpu(index=index) for index in range(gpus or 0)))

            one.engine._declare = declare
            await one.engine.declare_slots(5)
            assert len(one.engine.state.nodes["n1"].gpus) == 5

    asyncio.run(main())


def test_a_daemon_that_leaves_on_purpose_waives_leases_first() -> None:
    """So that no later daemon takes the machine for one whose leases end."""

    async def main() -> None:
        async with world() as one:
            await one.engine.add_node(Node(name="far", lease_s=60.0, boot_id="b"))
            await one.engine.let_go()
            nodes = one.engine.state.nodes
            assert {name: node.lease_waived for name, node in nodes.items()} == {"n1": False, "far": True}

    asyncio.run(main())


def test_there_is_nothing_to_look_ahead_from_before_a_policy_is_chosen() -> None:
    async def main() -> None:
        assert World().engine._explaining.moment() is None
        async with world() as one:
            now = one.engine._explaining.moment()
            assert now is not None
            assert list(now.state.nodes) == ["n1"]

    asyncio.run(main())
