"""The daemon dies at every boundary between a commit and an effect, one after the other, and starts again.

A boundary is: before and after each write of the log, before and after each thing asked of the executor. What is on
disk and what runs on the machine outlive the daemon; all else is gone. Whatever the boundary, the end is the same as
without a crash, no run is started twice, nothing is left of a removed job, and the log replays to the state.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from swell.core.events import Event
from swell.core.ids import JobId, RunId
from swell.core.job import GpuRequest, JobSpec, Preemptible
from swell.core.lifecycle import replay
from swell.core.observations import Observation
from swell.core.resources import Gpu, Node
from swell.core.snapshot import Options
from swell.core.state import State
from swell.daemon.committer import Committer
from swell.daemon.engine import Engine, Settings
from swell.daemon.passes import Timing
from swell.executors.scripted import Script, ScriptedExecutor, Theatre
from swell.plan.deadlines import Patience
from swell.ports import Answer, Launch, LogChunk, Order, Stored, Worker
from swell.speed.book import Book
from swell.store.journal import Journal
from swell.store.memory import MemoryStore

FULL = os.environ.get("SWELL_CHAOS") == "full"
NODE = Node(name="n1", gpus=(Gpu(index=0), Gpu(index=1)), cpus=8, memory_mib=8192)
STEPS = 40


class Crash(Exception):
    """Whoever catches it can do no harm: nothing that a dead daemon asks for is carried out."""


@dataclass
class Fate:
    """Counts boundaries and lets the daemon die at one of them. A dead daemon does nothing more."""

    die_at: int | None = None
    passed: int = 0
    dead: bool = False
    trail: list[str] = field(default_factory=list)

    def boundary(self, name: str) -> None:
        if self.dead:
            raise Crash(name)
        self.passed += 1
        self.trail.append(name)
        if self.passed == self.die_at:
            self.dead = True
            raise Crash(name)


class MortalStore:
    def __init__(self, store: MemoryStore, fate: Fate) -> None:
        self._store, self._fate = store, fate

    @property
    def cluster_id(self) -> str:
        return self._store.cluster_id

    @property
    def epoch(self) -> int:
        return self._store.epoch

    def append(self, first_seq: int, events: Sequence[Event]) -> None:
        kinds = "+".join(type(event).__name__ for event in events)
        self._fate.boundary(f"before commit of {kinds}")
        self._store.append(first_seq, events)
        self._fate.boundary(f"after commit of {kinds}")

    def events(self, after_seq: int = 0, limit: int | None = None) -> Sequence[Stored]:
        return self._store.events(after_seq, limit)

    def checkpoint(self, state: State, book: bytes = b"") -> None:
        self._store.checkpoint(state, book)

    def book(self) -> tuple[int, bytes]:
        return self._store.book()

    @property
    def first_seq(self) -> int:
        return self._store.first_seq

    def compact(self, before_s: float, limit: int) -> int:
        return self._store.compact(before_s, limit)

    def prove_writable(self) -> None:
        self._store.prove_writable()

    def load(self) -> State:
        return self._store.load()

    def close(self) -> None: ...


class MortalExecutor:
    def __init__(self, executor: ScriptedExecutor, fate: Fate) -> None:
        self._executor, self._fate = executor, fate

    async def launch(self, order: Order) -> Answer:
        self._fate.boundary(f"before launch of {order.run}")
        answer = await self._executor.launch(order)
        self._fate.boundary(f"after launch of {order.run}")
        return answer

    async def resize(self, order: Order) -> Answer:
        return await self._executor.resize(order)

    async def signal(self, run: RunId, *, kill: bool) -> Answer:
        self._fate.boundary(f"before signal to {run}")
        answer = await self._executor.signal(run, kill=kill)
        self._fate.boundary(f"after signal to {run}")
        return answer

    def observe(self, known: Sequence[RunId]) -> AsyncIterator[Observation]:
        return self._executor.observe(known)

    async def log(self, run: RunId, rank: int, offset: int, limit: int) -> LogChunk:
        return await self._executor.log(run, rank, offset, limit)

    async def log_since(self, run: RunId, rank: int, age_s: float) -> int:
        return await self._executor.log_since(run, rank, age_s)

    async def remove(self, job: JobId) -> Answer:
        self._fate.boundary(f"before deletion of {job}")
        answer = await self._executor.remove(job)
        self._fate.boundary(f"after deletion of {job}")
        return answer

    def tick(self) -> None:
        self._executor.tick()


class HandClock:
    """Moved by hand; monotonic time is real, since time-outs of the daemon are not what is tested."""

    def __init__(self) -> None:
        self.at_s = 1_000_000.0

    def now_s(self) -> float:
        return self.at_s

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()


class MachineClock:
    """The machines' own: moved with the other by hand."""

    def __init__(self, clock: HandClock) -> None:
        self._clock = clock

    def now_s(self) -> float:
        return self._clock.at_s

    def monotonic_s(self) -> float:
        return self._clock.at_s


def prepare(order: Order) -> Launch:
    record = order.record
    assert record.run is not None
    worker = Worker(rank=0, node="n1", argv=record.spec.command, env={}, cwd="/")
    return Launch(run=record.run.id, workers=(worker,), grace_s=record.spec.grace_s)


def behave(launch: Launch, worker: Worker) -> Script:
    """The command says what happens: `lasts SECONDS`, or `fails-first SECONDS`."""
    kind, seconds = worker.argv
    if kind == "fails-first" and launch.run.attempt == 1:
        return Script(lasts_s=float(seconds), exit_code=1)
    return Script(lasts_s=float(seconds), stop_s=1.0)


def spec(name: str, kind: str, seconds: float, gpus: int, **changes: object) -> JobSpec:
    return JobSpec(
        name=name,
        command=(kind, str(seconds)),
        gpus=GpuRequest(min=gpus, max=gpus),
        preemptible=Preemptible.RESTART,
        **changes,  # type: ignore[arg-type]
    )


ARRIVALS: Mapping[int, JobSpec] = {
    0: spec("long", "lasts", 6, 1),
    1: spec("flaky", "fails-first", 2, 1, retries=1, backoff_s=2.0),
    4: spec("urgent", "lasts", 3, 2, priority=10),
    6: spec("doomed", "lasts", 500, 1),
    7: spec("after", "lasts", 1, 1, depends_on=(1,)),
    8: spec("unwanted", "lasts", 1, 1),
}
CANCEL_AT, CANCELLED = 20, 4
REMOVE_AT, REMOVED = 30, 6


class Ordeal:
    """One life of the cluster, with at most one crash of the daemon."""

    def __init__(self, die_at: int | None) -> None:
        self.fate = Fate(die_at=die_at)
        self.store = MemoryStore()
        self.theatre = Theatre(nodes=(NODE,))
        self.clock = HandClock()
        self.crashes = 0

    def engine(self) -> Engine:
        store, book = MortalStore(self.store, self.fate), Book()
        self.executor = MortalExecutor(
            ScriptedExecutor(self.theatre, MachineClock(self.clock), behave, prepare), self.fate
        )
        timing = Timing(interval_s=0.002, coalesce_s=0.0, patience=Patience(gang_timeout_s=60.0))
        return Engine(
            committer=Committer(store, Journal(store), book),
            record=self.store,
            executor=self.executor,
            book=book,
            clock=self.clock,
            kept_here=lambda: sorted({run.job for run in self.theatre.plays}),
            settings=Settings(policy="fifo", options=Options(min_run_s=0.0), timing=timing),
        )

    async def live(self) -> State:
        engine = await self.born()
        for step in range(STEPS):
            self.clock.at_s += 1.0
            engine = await self.do(engine, step)
            self.executor.tick()
            engine = await self.quiet(engine)
        state = engine.state
        self.fate.dead = True
        await bury()
        return state

    async def born(self) -> Engine:
        while True:
            engine = self.engine()
            if await self.survived(engine.start()):
                return engine
            await self.buried()

    async def survived(self, work: Coroutine[object, object, object]) -> bool:
        """Do something that the daemon may not live to finish."""
        task = asyncio.create_task(work)
        while not task.done() and not self.fate.dead:
            await asyncio.wait({task}, timeout=0.005)
        if self.fate.dead:
            return False
        task.result()
        return True

    async def buried(self) -> None:
        await bury()
        self.crashes += 1
        self.fate = Fate()

    async def do(self, engine: Engine, step: int) -> Engine:
        """What people do at this step; who gets no answer asks again, with the same key."""
        while not await self.survived(self.wishes(engine, step)):
            await self.buried()
            engine = await self.born()
        return engine

    async def wishes(self, engine: Engine, step: int) -> None:
        if step in ARRIVALS:
            await engine.submit([ARRIVALS[step]], key=f"k{step}")
        if step == CANCEL_AT and not engine.state.jobs[CANCELLED].ended:
            await engine.cancel(CANCELLED, by="ann")
        if step == REMOVE_AT and REMOVED in engine.state.jobs:
            assert engine.state.jobs[REMOVED].ended
            await engine.remove(REMOVED, by="ann")

    async def quiet(self, engine: Engine) -> Engine:
        """Until two passes in a row have found nothing to do, or the daemon has died and a new one is at it."""
        while True:
            seq, passes = engine.state.seq, engine.health()["passes"]
            for _ in range(500):
                if self.fate.dead or int(str(engine.health()["passes"])) >= int(str(passes)) + 2:
                    break
                await asyncio.sleep(0.002)
            if self.fate.dead:
                await self.buried()
                engine = await self.born()
            elif engine.state.seq == seq and not engine.busy:
                return engine


async def bury() -> None:
    """The process is gone: its tasks with it. Nothing is written or told any more."""
    me = asyncio.current_task()
    for task in asyncio.all_tasks():
        if task is not me:
            task.cancel()
    await asyncio.gather(*(t for t in asyncio.all_tasks() if t is not me), return_exceptions=True)


def outcome(state: State) -> dict[str, tuple[str, int]]:
    return {job.spec.name: (job.state, job.failures) for job in state.jobs.values()}


EXPECTED = {
    "long": ("completed", 0),
    "flaky": ("completed", 1),
    "urgent": ("completed", 0),
    "doomed": ("cancelled", 0),
    "after": ("completed", 0),
}


def check(ordeal: Ordeal, state: State, at: str) -> None:
    assert outcome(state) == EXPECTED, at
    assert max(ordeal.theatre.starts.values()) == 1, at
    assert {run.job for run in ordeal.theatre.plays} == set(state.jobs), at
    stored = [s.event for s in ordeal.store.events()]
    again = replay(stored)
    assert again == ordeal.store.load(), at
    for job in state.jobs.values():
        assert len([run for run in ordeal.theatre.starts if run.job == job.id]) == job.attempts, at


def boundaries() -> int:
    ordeal = Ordeal(None)
    state = asyncio.run(ordeal.live())
    check(ordeal, state, "without a crash")
    return ordeal.fate.passed


@pytest.mark.chaos
def test_never_ends_otherwise_whatever_the_boundary_at_which_the_daemon_dies() -> None:
    count = boundaries()
    assert count > 40
    for die_at in range(1, count + 1, 1 if FULL else 4):
        ordeal = Ordeal(die_at)
        fate = ordeal.fate
        state = asyncio.run(ordeal.live())
        at = f"death at boundary {die_at}: {fate.trail[-1] if fate.trail else ''}"
        assert ordeal.crashes == 1, at
        check(ordeal, state, at)
