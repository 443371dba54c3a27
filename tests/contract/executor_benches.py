"""What the executor suite needs of each adapter: the same acts, played by real processes or by scripts."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from contract.transport_benches import CLUSTER, greeting, no_upstream, over_pipe
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.observations import Adopted, FilesFound, NodeHeard, NodeSeen, Observation
from swell.core.resources import Allocation, Node, Part
from swell.core.state import JobRecord, Run
from swell.executors.hosts import HostExecutor
from swell.executors.local import LocalExecutor
from swell.executors.places import Place
from swell.executors.scripted import Script, ScriptedExecutor, Theatre
from swell.executors.ssh.transport import Dial, SshTransport
from swell.executors.tracking import Tuning
from swell.executors.transport import LocalTransport
from swell.ports import Executor, Launch, Order, Worker

Told = TypeVar("Told", bound=Observation)

RUN = RunId(7, 1)
LIMIT_S = 20.0
"""A test that waits longer for an observation has failed; none takes nearly as long."""

ACTS = ("finish", "fail", "stopped", "stay", "deaf", "missing", "killed", "polite")

SHELL = {
    "finish": ("sh", "-c", "echo one; echo two; exit 0"),
    "fail": ("sh", "-c", "echo working; echo 'ValueError: no such layer' >&2; exit 3"),
    "stopped": ("sh", "-c", "exit 85"),
    "stay": ("sh", "-c", "echo here; exec sleep 1000"),
    "deaf": ("sh", "-c", "trap '' TERM; echo here; while :; do sleep 0.05; done"),
    "missing": ("no-such-program",),
    "killed": ("sh", "-c", "kill -SEGV $$"),
    "polite": ("sh", "-c", "trap 'exit 0' TERM; echo here; while :; do sleep 0.02; done"),
}

SCRIPTS = {
    "finish": Script(lasts_s=0.5, log=b"one\ntwo\n"),
    "fail": Script(lasts_s=0.5, exit_code=3, log=b"working\nValueError: no such layer\n"),
    "stopped": Script(lasts_s=0.5, exit_code=85),
    "stay": Script(log=b"here\n"),
    "deaf": Script(stop_s=None, log=b"here\n"),
    "missing": Script(cannot_start="there is no such program"),
    "killed": Script(lasts_s=0.5, signal=11),
    "polite": Script(stop_code=0, log=b"here\n"),
}


class RealClock:
    def now_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()


class FakeClock:
    def __init__(self) -> None:
        self.s = 1000.0

    def now_s(self) -> float:
        return self.s

    def monotonic_s(self) -> float:
        return self.s


class Bench(Protocol):
    """One world, in which executors come and go."""

    def executor(self) -> Executor: ...

    async def pass_time(self) -> None:
        """A moment: real, or on the clock."""
        ...

    def starts(self, run: RunId) -> int:
        """How often the run's workers really began."""
        ...


class LocalBench:
    def __init__(self, home: Path) -> None:
        self.runs = home / "runs"

    def executor(self) -> Executor:
        return LocalExecutor(self.runs, RealClock(), as_is, tuning=Tuning(poll_s=0.3, straggler_s=0.2))

    async def pass_time(self) -> None:
        await asyncio.sleep(0.02)

    def starts(self, run: RunId) -> int:
        logs = [log.read_text() for log in (self.runs / str(run)).glob("*/log")]
        return max((log.count("here") + log.count("one") for log in logs), default=0)


class AgentBench(LocalBench):
    """This machine again, through an agent."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.runs = home / "far" / CLUSTER / "runs"

    def dial(self) -> Dial:
        return over_pipe([])

    def executor(self) -> Executor:
        return far_executor(self.home, self.dial(), as_is)


def far_executor(home: Path, dial: Dial, prepare: Callable[[Order], Launch]) -> Executor:
    """Of one machine, reached through an agent."""
    transport = SshTransport(greeting(home), dial, no_upstream)
    place = Place(name="here", transport=transport, lease_s=600.0)
    kept = LocalTransport(home / "kept")

    async def prepared(order: Order) -> Launch:
        return prepare(order)

    tuning = Tuning(poll_s=0.3, straggler_s=0.2)
    return HostExecutor(kept, RealClock(), prepared, here=None, places=[place], tuning=tuning)


class ScriptedBench:
    def __init__(self, home: Path) -> None:
        self.clock = FakeClock()
        self.theatre = Theatre()
        self.executors: list[ScriptedExecutor] = []

    def executor(self) -> Executor:
        behave = lambda _, worker: SCRIPTS[worker.argv[-1]]  # noqa: E731
        self.executors.append(ScriptedExecutor(self.theatre, self.clock, behave, as_is))
        return self.executors[-1]

    async def pass_time(self) -> None:
        self.clock.s += 0.25
        for executor in self.executors:
            executor.tick()
        await asyncio.sleep(0)

    def starts(self, run: RunId) -> int:
        return self.theatre.starts.get(run, 0)


BENCHES: dict[str, Callable[[Path], Bench]] = {"local": LocalBench, "agent": AgentBench, "scripted": ScriptedBench}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(Order):
    """An order that is prepared already."""

    launch: Launch


def ready(launch: Launch) -> Ready:
    names = tuple(dict.fromkeys(worker.node for worker in launch.workers))
    allocation = Allocation(parts=tuple(Part(node=name) for name in names))
    run = Run(id=launch.run, allocation=allocation, planned_s=0.0)
    record = JobRecord(id=launch.run.job, spec=JobSpec(name="j", command=("true",)), submitted_s=0.0, run=run)
    return Ready(record=record, nodes={name: Node(name=name) for name in names}, launch=launch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unready(Ready):
    """An order for which there is no room."""


def as_is(order: Order) -> Launch:
    assert isinstance(order, Ready)
    if isinstance(order, Unready):
        raise OSError(errno.ENOSPC, "No space left on device")
    return order.launch


def launch_of(bench: Bench, *acts: str, run: RunId = RUN, grace_s: float = 0.5) -> Ready:
    def argv(act: str) -> tuple[str, ...]:
        return (act,) if isinstance(bench, ScriptedBench) else SHELL[act]

    env = {"PATH": "/usr/bin:/bin"}
    workers = tuple(Worker(rank=rank, node="here", argv=argv(act), env=env, cwd="/") for rank, act in enumerate(acts))
    return ready(Launch(run=run, workers=workers, grace_s=grace_s))


class Watcher:
    """Collects what an executor tells; about nodes only if asked."""

    def __init__(self, bench: Bench, executor: Executor, known: Sequence[RunId], nodes: bool = False) -> None:
        self.bench = bench
        self.executor = executor
        self.nodes = nodes
        self.told: list[Observation] = []
        self.adopted = False
        self._task = asyncio.create_task(self._collect(known))

    async def _collect(self, known: Sequence[RunId]) -> None:
        async for observation in self.executor.observe(known):
            if isinstance(observation, Adopted):
                self.adopted = True
            elif self.nodes or not isinstance(observation, NodeSeen | NodeHeard | FilesFound):
                self.told.append(observation)

    async def until(self, kind: type[Told], run: RunId = RUN, count: int = 1) -> Told:
        """The observation of this kind about this run, as soon as it is there."""
        give_up_s = time.monotonic() + LIMIT_S
        while time.monotonic() < give_up_s:
            found = [told for told in self.told if isinstance(told, kind) and told.run == run]  # type: ignore[union-attr]
            if len(found) >= count:
                return found[count - 1]
            if self._task.done():
                self._task.result()
            await self.bench.pass_time()
        raise AssertionError(f"no {kind.__name__} of run {run}; told: {self.told}")

    async def moments(self, number: int = 20) -> None:
        for _ in range(number):
            await self.bench.pass_time()

    def of(self, run: RunId = RUN) -> list[str]:
        return [type(told).__name__ for told in self.told if told.run == run]  # type: ignore[union-attr]

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@asynccontextmanager
async def watching(bench: Bench, known: Sequence[RunId] = (), *, nodes: bool = False) -> AsyncIterator[Watcher]:
    """An executor that observes until the end of the block."""
    watcher = Watcher(bench, bench.executor(), known, nodes)
    try:
        yield watcher
    finally:
        await watcher.close()
