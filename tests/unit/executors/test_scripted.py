"""The scripted executor's own tricks: faults that a daemon must survive, the same every time."""

from __future__ import annotations

import asyncio
import random

import pytest

from contract.executor_benches import Unready, as_is, ready
from swell.core.events import ExitReason
from swell.core.ids import RunId
from swell.core.observations import FilesFound, Observation, RunGone, RunUp
from swell.executors.scripted import Faults, Script, ScriptedExecutor, Theatre
from swell.ports import Done, Launch, Refused, Worker


class FakeClock:
    def __init__(self) -> None:
        self.s = 0.0

    def now_s(self) -> float:
        return self.s

    def monotonic_s(self) -> float:
        return self.s


def launch(job: int, workers: int = 1) -> Launch:
    worker = [Worker(rank=rank, node="a", argv=("x",), env={}, cwd="/") for rank in range(workers)]
    return Launch(run=RunId(job, 1), workers=tuple(worker), grace_s=10.0)


def play(script: Script, faults: Faults, *, jobs: int = 8, seed: int = 1, steps: int = 20) -> list[Observation]:
    """Launch `jobs` runs, a second apart; what was told, in order."""
    told: list[Observation] = []

    async def scene() -> None:
        clock = FakeClock()
        executor = ScriptedExecutor(Theatre(), clock, lambda *_: script, as_is, faults=faults, rng=random.Random(seed))
        watch = asyncio.create_task(_collect(executor, told))
        for step in range(steps):
            if step < jobs:
                await executor.launch(ready(launch(step)))
            clock.s += 1.0
            executor.tick()
            await asyncio.sleep(0)
        executor.flush()
        for _ in range(3):
            await asyncio.sleep(0)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    asyncio.run(scene())
    return told


async def _collect(executor: ScriptedExecutor, told: list[Observation]) -> None:
    async for item in executor.observe([]):
        if not isinstance(item, FilesFound):
            told.append(item)


def test_times_are_those_of_the_script() -> None:
    told = play(Script(start_s=0.5, lasts_s=2.0), Faults(), jobs=1)
    assert told == [
        RunUp(run=RunId(0, 1), at_s=0.5),
        RunGone(run=RunId(0, 1), reason=ExitReason.FINISHED, at_s=2.5, exit_code=0),
    ]


def test_a_lost_shim_is_told_at_its_time() -> None:
    told = play(Script(lost_s=3.0), Faults(), jobs=1)
    assert isinstance(told[-1], RunGone)
    assert (told[-1].reason, told[-1].at_s) == (ExitReason.SHIM_LOST, 3.0)


def test_faults_double_and_reorder_but_never_lose() -> None:
    plain = play(Script(lasts_s=2.0), Faults())
    faulty = play(Script(lasts_s=2.0), Faults(duplicate=0.5, reorder=0.5))
    assert len(faulty) > len(plain)
    assert faulty[: len(plain)] != plain
    assert {str(item) for item in faulty} == {str(item) for item in plain}


def test_the_same_seed_gives_the_same_observations() -> None:
    faults = Faults(duplicate=0.3, reorder=0.3)
    assert play(Script(lasts_s=2.0), faults, seed=4) == play(Script(lasts_s=2.0), faults, seed=4)
    assert play(Script(lasts_s=2.0), faults, seed=4) != play(Script(lasts_s=2.0), faults, seed=5)


def test_a_dropped_launch_starts_nothing_until_told_again() -> None:
    assert play(Script(lasts_s=2.0), Faults(drop_launches=2), jobs=2) == []


def test_sigterm_then_sigkill_after_the_grace() -> None:
    async def scene() -> None:
        clock, told = FakeClock(), list[Observation]()
        executor = ScriptedExecutor(Theatre(), clock, lambda *_: Script(stop_s=None), as_is)
        watch = asyncio.create_task(_collect(executor, told))
        await executor.launch(ready(launch(1)))
        await executor.signal(RunId(1, 1), kill=False)
        clock.s = 9.0
        executor.tick()
        await asyncio.sleep(0)
        assert [type(item) for item in told] == [RunUp]
        clock.s = 11.0
        executor.tick()
        await asyncio.sleep(0)
        assert isinstance(told[-1], RunGone)
        assert (told[-1].reason, told[-1].at_s) == (ExitReason.STOPPED, 10.0)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    asyncio.run(scene())


def test_a_launch_that_cannot_be_prepared_again_is_done_if_its_run_has_begun_and_refused_if_not() -> None:
    async def scene() -> None:
        executor = ScriptedExecutor(Theatre(), FakeClock(), lambda *_: Script(), as_is)
        first = ready(launch(1))
        no_room = Unready(record=first.record, nodes=first.nodes, launch=first.launch)
        assert isinstance(await executor.launch(no_room), Refused)
        await executor.launch(first)
        assert isinstance(await executor.launch(no_room), Done)

    asyncio.run(scene())


@pytest.mark.parametrize(("obeys_newer", "refused"), [("b", False), ("a b", True), ("", False)])
def test_a_launch_that_some_machines_refuse_is_done_while_another_has_its_part(
    obeys_newer: str, *, refused: bool
) -> None:
    """Its end is reported then; what all refuse has none."""

    async def scene() -> None:
        theatre = Theatre()
        for name in obeys_newer.split():
            assert theatre.machine(name).obeys(2)
        executor = ScriptedExecutor(theatre, FakeClock(), lambda *_: Script(), as_is, epoch=1)
        workers = tuple(Worker(rank=i, node=name, argv=("x",), env={}, cwd="/") for i, name in enumerate("ab"))
        answer = await executor.launch(ready(Launch(run=RunId(1, 1), workers=workers, grace_s=10.0)))
        assert isinstance(answer, Refused) is refused
        assert isinstance(answer, Done) is not refused

    asyncio.run(scene())


def test_a_launch_that_is_refused_is_not_done_because_another_run_is_there() -> None:
    async def scene() -> None:
        theatre = Theatre()
        older, newer = (ScriptedExecutor(theatre, FakeClock(), lambda *_: Script(), as_is, epoch=e) for e in (1, 2))
        assert isinstance(await newer.launch(ready(launch(1))), Done)
        assert isinstance(await older.launch(ready(launch(2))), Refused)

    asyncio.run(scene())
