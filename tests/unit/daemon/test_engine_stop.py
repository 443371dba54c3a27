"""A graceful stop: nothing is left half done, and nothing that waits keeps the daemon from ending."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from swell.core.errors import StoreError
from swell.core.job import GpuRequest, JobSpec
from swell.ports import Answer, Order, Refused
from unit.daemon.test_engine_tasks import World, quick

__all__ = ["quick"]  # a fixture
JOB = JobSpec(name="j", command=("true",), gpus=GpuRequest(min=1, max=1))
ENDS_S = 10.0
"""Far more than a stop takes here."""


class Scene:
    """An engine that has sent a command, which is answered when the test says so."""

    def __init__(self) -> None:
        self.world = World()
        self.sent, self.answered = asyncio.Event(), asyncio.Event()
        self.refused = False
        self._launch = self.world.executor.launch

    async def launch(self, order: Order) -> Answer:
        self.sent.set()
        await self.answered.wait()
        return Refused(why="no such program") if self.refused else await self._launch(order)

    async def stop(self) -> None:
        async with asyncio.timeout(ENDS_S):
            await self.world.engine.stop()

    def breaks(self) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise StoreError("away")

        store = self.world.store
        store.append, store.prove_writable = refuse, refuse  # type: ignore[method-assign]
        self.world.engine._committer.doubt(StoreError("away"))
        assert not self.world.engine.health()["ready"]


@asynccontextmanager
async def launching() -> AsyncIterator[Scene]:
    scene = Scene()
    scene.world.executor.launch = scene.launch  # type: ignore[method-assign]
    await scene.world.engine.start()
    await scene.world.until(lambda: scene.world.engine.state.nodes)
    await scene.world.engine.submit([JOB])
    await scene.world.until(scene.sent.is_set)
    yield scene


def test_a_command_that_was_sent_has_its_answer_before_the_log_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with launching() as scene:
            engine, under_way = scene.world.engine, list[bool]()
            stop_tasks, close = engine.tasks.stop, engine._committer.close

            async def stops_tasks() -> None:
                await stop_tasks()
                scene.answered.set()

            async def closes() -> None:
                under_way.append(engine._effects.under_way)
                await close()

            monkeypatch.setattr(engine.tasks, "stop", stops_tasks)
            monkeypatch.setattr(engine._committer, "close", closes)
            await scene.stop()
            assert under_way == [False]

    asyncio.run(main())


def test_a_run_that_could_not_be_started_does_not_keep_a_daemon_whose_store_is_away() -> None:
    """That it was refused can be written nowhere; the next start sends it again."""

    async def main() -> None:
        async with launching() as scene:
            scene.refused = True
            scene.breaks()
            scene.answered.set()
            await scene.stop()

    asyncio.run(main())


def test_after_it_nothing_goes_on_and_nothing_is_taken() -> None:
    async def main() -> None:
        before = asyncio.all_tasks()
        async with launching() as scene:
            scene.answered.set()
            await scene.stop()
            assert asyncio.all_tasks() == before
            with pytest.raises(StoreError, match="the daemon is stopping"):
                await scene.world.engine.submit([JOB])

    asyncio.run(main())


def test_the_next_start_goes_on_from_a_checkpoint_of_all_that_was_written() -> None:
    async def main() -> None:
        async with launching() as scene:
            scene.answered.set()
            await scene.stop()
            engine = scene.world.engine
            assert engine._committer._checkpoint_seq == engine.state.seq == engine._committer.durable_seq

    asyncio.run(main())
