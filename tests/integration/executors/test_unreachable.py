"""A machine that does not answer proves nothing: its runs are neither failed nor killed, and others are not delayed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contract.executor_benches import RUN, SHELL, RealClock, Watcher, as_is, ready, watching
from swell.checkpoints.holder import Holder
from swell.core.events import ExitReason
from swell.core.idle import GpuUse
from swell.core.ids import JobId, RunId
from swell.core.observations import RunGone, RunUp
from swell.core.resources import Node
from swell.executors.inventory import Ours
from swell.executors.local import LocalExecutor
from swell.executors.places import Inspected, Place
from swell.executors.tracking import Tuning
from swell.executors.transport import LocalTransport, Look, Unreachable
from swell.ports import Done, Executor, JobTree, Launch, LogChunk, Piece, Unknown, Worker


class FarTransport:
    """Another machine, played by a directory of this one. `cut`: nothing arrives. `deaf`: its answers get lost."""

    def __init__(self, runs: Path) -> None:
        self.inner = LocalTransport(runs)
        self.cut = False
        self.deaf = False

    async def _carried(self, call: Callable[[], Any]) -> Any:
        if self.cut:
            raise Unreachable("the machine does not answer")
        found = await call()
        if self.deaf:
            raise Unreachable("the answer got lost")
        return found

    async def start(self, run: RunId, requests: Sequence[dict[str, Any]]) -> None:
        await self._carried(lambda: self.inner.start(run, requests))

    async def look(self, runs: Mapping[RunId, Sequence[int]]) -> Look:
        found: Look = await self._carried(lambda: self.inner.look(runs))
        return found

    async def renew(self, boot_id: str, until_s: float | None) -> None: ...

    async def stop(self, run: RunId, ranks: Sequence[int], *, kill: bool, whole: bool) -> None:
        await self._carried(lambda: self.inner.stop(run, ranks, kill=kill, whole=whole))

    async def force(self, run: RunId, ranks: Sequence[int]) -> None:
        await self._carried(lambda: self.inner.force(run, ranks))

    async def put(self, run: RunId, name: str, data: bytes) -> None:
        await self._carried(lambda: self.inner.put(run, name, data))

    async def get(self, run: RunId, name: str) -> bytes | None:
        found: bytes | None = await self._carried(lambda: self.inner.get(run, name))
        return found

    async def read_log(self, run: RunId, rank: int, offset: int, limit: int) -> LogChunk:
        found: LogChunk = await self._carried(lambda: self.inner.read_log(run, rank, offset, limit))
        return found

    async def log_since(self, run: RunId, rank: int, age_s: float) -> int:
        found: int = await self._carried(lambda: self.inner.log_since(run, rank, age_s))
        return found

    async def remove(self, job: JobId) -> None:
        await self._carried(lambda: self.inner.remove(job))

    async def kept(self) -> Sequence[JobId]:
        found: Sequence[JobId] = await self._carried(self.inner.kept)
        return found

    async def tree(self, job: JobId, below: str) -> JobTree:
        found: JobTree = await self._carried(lambda: self.inner.tree(job, below))
        return found

    async def read(self, job: JobId, below: str, path: str, offset: int, limit: int) -> Piece:
        found: Piece = await self._carried(lambda: self.inner.read(job, below, path, offset, limit))
        return found

    def promise(self, run: RunId) -> None: ...

    @property
    def holder(self) -> Holder:
        return self.inner.holder

    def listen(self, heard: Callable[[RunId], None]) -> None: ...

    def close(self) -> None:
        self.inner.close()


class FarBench:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.far = FarTransport(home / "far")
        self.machine: Inspected | None = None

    def executor(self) -> Executor:
        tuning = Tuning(poll_s=0.05, straggler_s=0.1, ask_again_s=0.2, answer_s=5.0)
        far = Place(name="far", transport=self.far, machine=self.machine)
        return LocalExecutor(self.home / "runs", RealClock(), as_is, places=[far], tuning=tuning)

    async def pass_time(self) -> None:
        await asyncio.sleep(0.02)

    def starts(self, run: RunId) -> int:
        logs = [log.read_text() for log in self.home.glob(f"*/{run}/*/log")]
        return sum(log.count("here") for log in logs)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[FarBench]:
    made = FarBench(tmp_path)
    yield made
    made.far.cut = made.far.deaf = False

    async def end() -> None:
        for attempt in (1, 2):
            await made.executor().signal(RunId(RUN.job, attempt), kill=True)

    asyncio.run(end())
    made.far.close()


def gang(*nodes: str, run: RunId = RUN) -> Launch:
    argv, env = SHELL["stay"], {"PATH": "/usr/bin:/bin"}
    workers = [Worker(rank=rank, node=node, argv=argv, env=env, cwd="/") for rank, node in enumerate(nodes)]
    return Launch(run=run, workers=tuple(workers), grace_s=0.5)


async def ended(watch: Watcher, run: RunId = RUN) -> RunGone:
    await watch.executor.signal(run, kill=True)
    gone = await watch.until(RunGone, run)
    assert isinstance(gone, RunGone)
    return gone


@pytest.mark.parametrize("how", ["cut", "deaf"])
def test_a_launch_that_was_not_answered_is_unknown_and_goes_on_when_contact_is_back(bench: FarBench, how: str) -> None:
    async def play() -> None:
        async with watching(bench) as watch:
            order = ready(gang("near", "far"))
            setattr(bench.far, how, True)
            assert isinstance(await watch.executor.launch(order), Unknown)
            await watch.moments(40)
            setattr(bench.far, how, False)
            assert await watch.executor.launch(order) == Done()
            await watch.until(RunUp)
            assert watch.of() == ["RunUp"]
            while bench.starts(RUN) < 2:
                await bench.pass_time()
            assert (await ended(watch)).reason is ExitReason.STOPPED
            assert bench.starts(RUN) == 2

    asyncio.run(play())


def test_a_signal_that_was_not_answered_is_unknown_and_reaches_who_can_be_reached(bench: FarBench) -> None:
    async def play() -> None:
        async with watching(bench) as watch:
            await watch.executor.launch(ready(gang("near", "far")))
            await watch.until(RunUp)
            bench.far.cut = True
            assert isinstance(await watch.executor.signal(RUN, kill=True), Unknown)
            await watch.moments(20)
            assert watch.of() == ["RunUp"]  # of the far worker nothing is known, so the run is not over
            bench.far.cut = False
            assert (await ended(watch)).reason is ExitReason.STOPPED

    asyncio.run(play())


class CutDriver:
    """Of a machine whose link is cut right after the end of a run was seen."""

    async def read(self, ours: Ours) -> Node:
        raise Unreachable("the machine does not answer")

    def use(self) -> dict[int, GpuUse]:
        return {}

    async def clean(self, gpus: Sequence[int], ours: Ours) -> bool:
        raise Unreachable("the machine does not answer")


def test_an_end_is_reported_although_its_gpus_cannot_be_looked_at_any_more(bench: FarBench) -> None:
    async def play() -> None:
        bench.machine = CutDriver()
        async with watching(bench) as watch:
            [worker] = gang("far").workers
            await watch.executor.launch(ready(Launch(run=RUN, workers=(replace(worker, gpus=(0,)),), grace_s=0.5)))
            await watch.until(RunUp)
            assert (await ended(watch)).reason is ExitReason.STOPPED

    asyncio.run(play())


def test_one_machine_out_of_reach_at_a_start_delays_only_its_own_runs(bench: FarBench) -> None:
    near, far = RunId(RUN.job, 1), RunId(RUN.job, 2)

    async def play() -> None:
        async with watching(bench) as watch:
            for run, node in ((near, "near"), (far, "far")):
                await watch.executor.launch(ready(gang(node, run=run)))
                await watch.until(RunUp, run)
        bench.far.cut = True
        async with watching(bench, [far, near]) as watch:
            await watch.until(RunUp, near)
            await watch.moments(20)
            assert watch.of(far) == []
            assert (await ended(watch, near)).reason is ExitReason.STOPPED
            bench.far.cut = False
            await watch.until(RunUp, far)
            assert (await ended(watch, far)).reason is ExitReason.STOPPED

    asyncio.run(play())


def test_a_run_is_never_told_as_gone_while_it_could_still_start(
    bench: FarBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The near machine refuses its part, the far one cannot be told that nothing may start there any more."""

    async def refuses(run: RunId, requests: Sequence[dict[str, Any]]) -> None:
        bench.far.cut = True
        raise OSError(28, "No space left on device")

    async def play() -> None:
        async with watching(bench) as watch:
            monkeypatch.setattr(watch.executor._here.transport, "start", refuses)  # type: ignore[attr-defined]
            await watch.executor.launch(ready(gang("near", "far")))
            await watch.moments(40)
            assert watch.of() == []
            bench.far.cut = False
            gone = await watch.until(RunGone)
            assert isinstance(gone, RunGone)
            assert gone.reason is ExitReason.NODE_FULL
            assert "RunUp" not in watch.of()

    asyncio.run(play())


def test_a_machine_that_hangs_is_out_of_reach_after_its_time_out(bench: FarBench) -> None:
    async def hangs(*_: object) -> None:
        await asyncio.Event().wait()

    async def play() -> None:
        async with watching(bench) as watch:
            executor = watch.executor
            patient = executor._floor.tuning  # type: ignore[attr-defined]
            executor._floor.tuning = Tuning(poll_s=0.05, answer_s=0.5)  # type: ignore[attr-defined]
            bench.far.start = hangs  # type: ignore[method-assign, assignment]
            assert isinstance(await executor.launch(ready(gang("far"))), Unknown)
            executor._floor.tuning = patient  # type: ignore[attr-defined]
            near = RunId(RUN.job, 2)
            assert await executor.launch(ready(gang("near", run=near))) == Done()
            await watch.until(RunUp, near)
            await ended(watch, near)

    asyncio.run(play())


def test_removal_is_owed_by_every_machine(bench: FarBench) -> None:
    async def play() -> None:
        async with watching(bench) as watch:
            bench.far.cut = True
            assert isinstance(await watch.executor.remove(RUN.job), Unknown)
            bench.far.cut = False
            assert await watch.executor.remove(RUN.job) == Done()

    asyncio.run(play())
