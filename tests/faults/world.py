"""The real daemon (engine, passes, committer, supervisor) on a virtual clock, with a store and machines that fail as
the scenario says. Everything that must hold is checked after every durable batch, and whenever a worker really begins.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

from faults.scenario import Fault, Job, Kind, Scenario
from faults.virtual_loop import VirtualLoop
from swell.core.errors import Conflict, NotFound, StoreError
from swell.core.events import Event
from swell.core.invariants import violations
from swell.core.job import GpuRequest, JobSpec, Launcher, Preemptible
from swell.core.lifecycle import replay
from swell.core.resources import Gpu, Node, NodeCondition
from swell.core.snapshot import Options
from swell.core.state import JobState, State
from swell.daemon.committer import Committer
from swell.daemon.engine import Engine, Settings
from swell.daemon.passes import Timing
from swell.executors.scripted import Faults, Script, ScriptedExecutor, Theatre
from swell.plan.deadlines import Patience
from swell.ports import Launch, Order, Stored, Worker
from swell.speed.book import Book
from swell.store.journal import Journal
from swell.store.memory import MemoryStore

LIMIT_S = 12_000.0
"""A job that has not ended by then never will."""
POLL_S = 4.0
GRACE_S = 5.0
EPOCH_S = 1_000_000.0
PATIENCE = Patience(gang_timeout_s=60.0, preempt_wait_s=30.0, resize_wait_s=15.0)
NEVER_WRITTEN = "/nonexistent/checkpoints"


class Broken(AssertionError):
    """Something that must always hold did not."""


class WorldClock:
    """The daemon's wall clock may jump; the monotonic one never does."""

    def __init__(self) -> None:
        self.jump_s = 0.0

    def now_s(self) -> float:
        return EPOCH_S + self.monotonic_s() + self.jump_s

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()


class FailingStore(MemoryStore):
    """`down`: nothing can be read or written. `deaf`: writes happen, and are answered with an error."""

    def __init__(self) -> None:
        super().__init__()
        self.down = 0
        self.deaf = 0
        self.alive = True

    def _check(self) -> None:
        if self.down or not self.alive:
            raise StoreError("the store is down")

    def append(self, first_seq: int, events: Sequence[Event]) -> None:
        self._check()
        super().append(first_seq, events)
        if self.deaf:
            raise StoreError("the answer of the store got lost")

    def prove_writable(self) -> None:
        self._check()

    def load(self) -> State:
        self._check()
        return super().load()

    def events(self, after_seq: int = 0, limit: int | None = None) -> Sequence[Stored]:
        self._check()
        return super().events(after_seq, limit)


def prepare(order: Order) -> Launch:
    run = order.record.run
    assert run is not None
    workers = tuple(
        Worker(rank=rank, node=part.node, argv=order.record.spec.command, env={}, cwd="/", gpus=part.gpus)
        for rank, part in enumerate(run.allocation.parts)
    )
    return Launch(run=run.id, workers=workers, grace_s=order.record.spec.grace_s)


class World:
    def __init__(self, scene: Scenario) -> None:
        self.scene = scene
        self.clock = WorldClock()
        self.store = FailingStore()
        gpus = tuple(Gpu(index=index) for index in range(scene.gpus))
        nodes = tuple(Node(name=f"m{i}", gpus=gpus, cpus=64, memory_mib=65536) for i in range(scene.nodes))
        self.nodes = tuple(replace(node, lease_s=scene.lease_s) for node in nodes)
        self.theatre = Theatre(nodes=self.nodes, watched=True)
        self.rng = Random(scene.seed + 1)
        self.epoch = 0
        self.engine: Engine | None = None
        self.outside: list[asyncio.Task[Any]] = []  # tasks that are not the daemon's: people, and fate
        self.submitted: dict[int, int] = {}  # number of the job in the scenario -> id
        self.restarting = 0
        self.problem = ""

    # ---- life of the daemon ----

    def made(self) -> Engine:
        self.epoch += 1
        book, scene = Book(), self.scene
        faults = Faults(duplicate=scene.duplicate, reorder=scene.reorder)
        executor = ScriptedExecutor(
            self.theatre,
            self.clock,
            self.behave,
            prepare,
            faults=faults,
            rng=self.rng,
            epoch=self.epoch,
            poll_s=POLL_S,
        )
        committer = Committer(self.store, Journal(self.store), book)
        committer.listeners.append(self.check)
        timing = Timing(interval_s=10.0, coalesce_s=0.05, patience=PATIENCE)
        engine = Engine(
            committer=committer,
            record=self.store,
            executor=executor,
            book=book,
            clock=self.clock,
            settings=Settings(policy=scene.policy, options=Options(min_run_s=2.0), timing=timing),
        )
        engine._forecasts.run = _idle  # type: ignore[method-assign, assignment]
        return engine

    async def start(self) -> None:
        """Until it stands: while the store is down no daemon starts."""
        while True:
            engine = self.made()
            try:
                await engine.start()
            except StoreError:
                await self.bury()
                await asyncio.sleep(1.0)
                continue
            self.engine = engine
            return

    async def bury(self) -> None:
        """The daemon is gone with everything it was about to do."""
        self.engine = None
        mine = asyncio.current_task()
        doomed = [task for task in asyncio.all_tasks() if task is not mine and task not in self.outside]
        for task in doomed:
            task.cancel()
        await asyncio.gather(*doomed, return_exceptions=True)

    # ---- what people and fate do ----

    async def play(self) -> str:
        """The whole scenario; what the log says in the end, as a hash."""
        main = asyncio.current_task()
        assert main is not None
        self.outside.append(main)
        await self.start()
        steps: list[tuple[float, Callable[[], Awaitable[None]]]] = []
        for number, job in enumerate(self.scene.jobs):
            steps.append((job.at_s, lambda number=number, job=job: self.submit(number, job)))  # type: ignore[misc]
        for fault in self.scene.faults:
            steps.append((fault.at_s, lambda fault=fault: self.begin(fault)))  # type: ignore[misc]
            steps.append((fault.at_s + fault.lasts_s, lambda fault=fault: self.end(fault)))  # type: ignore[misc]
        loop = asyncio.get_running_loop()
        waiting: list[tuple[float, Callable[[], Awaitable[None]]]] = sorted(steps, key=lambda step: step[0])
        for at_s, act in waiting:
            await asyncio.sleep(max(0.0, at_s - loop.time()))
            await act()
            self.stop_if_broken()
        while not self.all_ended():
            await asyncio.sleep(5.0)
            await self.look_after_machines()
            self.stop_if_broken()
            if loop.time() > LIMIT_S:
                raise Broken(f"not all jobs come to an end: {self.left()}")
        self.check_the_end()
        return self.hash()

    async def look_after_machines(self) -> None:
        """What the daemon set aside, because nothing would start there, its operator puts back."""
        state = self.engine.state if self.engine is not None else State()
        for node in state.nodes.values():
            if node.condition is NodeCondition.QUARANTINED:
                await self.insist(lambda engine, name=node.name: _put_back(engine, name))  # type: ignore[misc]

    async def submit(self, number: int, job: Job) -> None:
        spec = JobSpec(
            name=f"j{number}",
            command=(job.ending, str(job.lasts_s)),
            gpus=GpuRequest(min=job.low, max=job.high),
            launcher=Launcher.PER_NODE,
            preemptible=Preemptible.RESTART,
            checkpoint_dir=NEVER_WRITTEN if job.saves else "",
            priority=job.priority,
            retries=job.retries,
            backoff_s=2.0,
            grace_s=GRACE_S,
        )
        await self.insist(lambda engine: self._submit(engine, number, spec))

    async def _submit(self, engine: Engine, number: int, spec: JobSpec) -> None:
        (self.submitted[number],) = await engine.submit([spec], key=f"k{number}")

    async def insist(self, wish: Callable[[Engine], Coroutine[Any, Any, None]]) -> None:
        """In the background: who gets no answer asks again."""
        self.outside.append(asyncio.create_task(self._insist(wish)))

    async def _insist(self, wish: Callable[[Engine], Coroutine[Any, Any, None]]) -> None:
        while True:
            if self.engine is not None:
                work = asyncio.create_task(wish(self.engine))
                await asyncio.wait({work})
                if not work.cancelled():
                    error = work.exception()
                    if error is None or isinstance(error, NotFound | Conflict):
                        return
                    if not isinstance(error, StoreError):
                        self.problem = self.problem or f"a wish failed: {error!r}"
                        return
            await asyncio.sleep(1.0)

    async def begin(self, fault: Fault) -> None:
        machine = self.theatre.machine(f"m{fault.target}")
        match fault.kind:
            case Kind.CUT:
                machine.link.cut, machine.link.late_s = True, fault.amount
            case Kind.DEAF:
                machine.link.deaf = True
            case Kind.SLOW:
                machine.link.slow_s = fault.amount
            case Kind.DOUBLED:
                machine.link.doubled = True
            case Kind.DOWN:
                machine.down(self.clock.monotonic_s())
            case Kind.STORE_DOWN:
                self.store.down += 1
            case Kind.STORE_DEAF:
                self.store.deaf += 1
            case Kind.CLOCK:
                self.clock.jump_s += fault.amount
            case Kind.RESTART:
                self.restarting += 1
                await self.bury()
            case Kind.CANCEL:
                if fault.target in self.submitted:
                    job = self.submitted[fault.target]
                    await self.insist(lambda engine: engine.cancel(job, by="ann"))

    async def end(self, fault: Fault) -> None:
        machine = self.theatre.machine(f"m{fault.target}")
        match fault.kind:
            case Kind.CUT:
                machine.link.cut, machine.link.late_s = False, 0.0
            case Kind.DEAF:
                machine.link.deaf = False
            case Kind.SLOW:
                machine.link.slow_s = 0.0
            case Kind.DOUBLED:
                machine.link.doubled = False
            case Kind.DOWN:
                if not machine.up:
                    machine.boot()
            case Kind.STORE_DOWN:
                self.store.down -= 1
            case Kind.STORE_DEAF:
                self.store.deaf -= 1
            case Kind.RESTART:
                self.restarting -= 1
                if not self.restarting:
                    self.outside.append(asyncio.create_task(self.start()))

    # ---- what the machines do ----

    def behave(self, launch: Launch, worker: Worker) -> Script:
        ending, lasts = worker.argv
        self.check_start(launch, worker)
        if ending == "broken":
            return Script(cannot_start="there is no such program")
        if ending == "fails" and launch.run.attempt == 1:
            return Script(start_s=0.5, lasts_s=float(lasts) / 2, exit_code=1)
        return Script(start_s=0.5, lasts_s=float(lasts), stop_s=None if ending == "deaf" else 1.0)

    def check_start(self, launch: Launch, worker: Worker) -> None:
        """A worker begins: no other attempt of its job lives anywhere, and its GPUs are free."""
        self.theatre.step(self.clock.monotonic_s())
        for machine in self.theatre.machines.values():
            for run, actors in machine.actors.items():
                for actor in actors.values():
                    if run == launch.run or actor.over is not None:
                        continue
                    if run.job == launch.run.job:
                        self.broken(f"run {launch.run} begins while {run} lives on {machine.name}")
                    if machine.name == worker.node and set(actor.worker.gpus) & set(worker.gpus):
                        self.broken(f"run {launch.run} begins on GPUs of {run} on {machine.name}")

    # ---- what must hold ----

    def check(self, events: Sequence[Event]) -> None:
        """After every durable batch."""
        if self.engine is None:
            return
        for text in violations(self.engine.state):
            self.broken(text)

    def broken(self, text: str) -> None:
        self.problem = self.problem or f"at {self.clock.monotonic_s():.1f} s: {text}"

    def stop_if_broken(self) -> None:
        if self.problem:
            raise Broken(self.problem)

    def all_ended(self) -> bool:
        """All jobs, and nothing is left of them on any machine."""
        self.theatre.step(self.clock.monotonic_s())
        state = self.engine.state if self.engine is not None else None
        done = state is not None and len(self.submitted) == len(self.scene.jobs) and not state.active
        calm = all(not machine.running() for machine in self.theatre.machines.values())
        here = state is not None and all(node.schedulable for node in state.nodes.values())
        return done and calm and here and asyncio.get_running_loop().time() > self.scene.faults_end_s

    def left(self) -> str:
        state = self.engine.state if self.engine is not None else State()
        jobs = [(state.jobs[job].id, str(state.jobs[job].state), state.jobs[job].attempts) for job in state.active]
        nodes = [(node.name, str(node.condition), str(node.contact)) for node in state.nodes.values()]
        running = [machine.running() for machine in self.theatre.machines.values()]
        return f"submitted {self.submitted}, active {jobs}, nodes {nodes}, running {running}"

    def check_the_end(self) -> None:
        stored = [item.event for item in MemoryStore.events(self.store)]
        if replay(stored) != MemoryStore.load(self.store):
            raise Broken("the log does not replay to the state")
        state = MemoryStore.load(self.store)
        cancelled = {fault.target for fault in self.scene.faults if fault.kind is Kind.CANCEL}
        for number, job in self.submitted.items():
            record = state.jobs.get(job)
            if record is None:
                raise Broken(f"job {job} was answered and is lost")
            ending = self.scene.jobs[number].ending
            well = ending in ("well", "deaf") or (ending == "fails" and record.spec.retries)
            if well and record.state is not JobState.COMPLETED and number not in cancelled:
                raise Broken(f"job {job} should have completed and is {record.state}: {record.message}")
            if ending == "broken" and record.state not in (JobState.FAILED, JobState.CANCELLED):
                raise Broken(f"job {job} cannot start and is {record.state}")
        for run, starts in self.theatre.starts.items():
            if starts > 1:
                raise Broken(f"run {run} was started {starts} times")

    def hash(self) -> str:
        found = hashlib.sha256()
        for stored in MemoryStore.events(self.store):
            found.update(repr(stored).encode())
        return found.hexdigest()


async def _idle(*_: object) -> None:
    """Forecasts decide nothing."""
    await asyncio.Event().wait()


def played(scene: Scenario) -> str:
    """Play the scenario from beginning to end; the hash of its log. Raises Broken."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_play(World(scene)))


async def _play(world: World) -> str:
    try:
        return await world.play()
    finally:
        world.outside.clear()
        await world.bury()


def failure_of(scene: Scenario) -> str:
    """What is wrong with it; empty if nothing is."""
    try:
        with suppress(NotFound):
            played(scene)
    except Broken as broken:
        return str(broken)
    return ""


def shrunk(scene: Scenario) -> Scenario:
    """A scenario that still fails, with as few faults and jobs as can be found by leaving out one at a time."""
    while True:
        smaller = next((less for less in _smaller(scene) if failure_of(less)), None)
        if smaller is None:
            return scene
        scene = smaller


def _smaller(scene: Scenario) -> list[Scenario]:
    faults = [replace(scene, faults=scene.faults[:i] + scene.faults[i + 1 :]) for i in range(len(scene.faults))]
    last = len(scene.jobs) - 1
    fewer = [replace(scene, jobs=scene.jobs[:last])] if last > 0 else []
    calm = [replace(scene, duplicate=0.0, reorder=0.0)] if scene.duplicate or scene.reorder else []
    return [*faults, *fewer, *calm]


logging.getLogger("swell").addHandler(logging.NullHandler())


async def _put_back(engine: Engine, node: str) -> None:
    await engine.set_node_condition(node, NodeCondition.READY, by="operator")
