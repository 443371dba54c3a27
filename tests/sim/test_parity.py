"""Parity: the daemon, with a scripted executor and a clock moved by hand, decides what the simulator decides, event for
event, on random workloads.

Jobs last as long as they say and start from nothing after a stop, in both worlds. The clock of the daemon is moved from
moment to moment of the simulation; at each it does whatever it does until it is quiet. No two things happen at exactly
the same time: in which order the daemon would hear of them is chance.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from swell.core.events import Event, ExitReason, RunEnded, RunPlanned, RunResized, RunStarted, RunStopRequested
from swell.core.invariants import stops_for_nothing
from swell.core.job import GpuRequest, JobSpec, Preemptible
from swell.core.snapshot import Options
from swell.core.state import JobRecord, State
from swell.daemon.committer import Committer
from swell.daemon.engine import Engine, Settings
from swell.daemon.passes import Timing
from swell.executors.scripted import Script, ScriptedExecutor, Theatre
from swell.placement.registry import placer_named
from swell.plan.deadlines import Patience
from swell.policy.registry import policy_named
from swell.ports import Launch, Order, Worker
from swell.sim.cluster import parse_cluster
from swell.sim.engine import Setup, Simulation
from swell.sim.workload import Arrival, Workload
from swell.speed.book import Book
from swell.store.journal import Journal
from swell.store.memory import MemoryStore

WORKLOADS = 50
POLICIES = ("fifo", "elastic-fifo", "srjf", "tiresias", "elastic-tiresias", "afs-l", "swell")
NODES = parse_cluster("2x4")
OPTIONS = Options(min_run_s=5.0)
Decision = tuple[str, str, float, object]


def workload(seed: int) -> Workload:
    rng = random.Random(seed)
    arrivals = []
    for i in range(rng.randint(3, 8)):
        low = rng.choice([1, 1, 2, 3, 4])
        spec = JobSpec(
            name=f"j{i}",
            command=("lasts", f"{rng.uniform(5, 60):.6f}"),
            gpus=GpuRequest(min=low, max=rng.choice([low, 4])),
            priority=rng.choice([0, 0, 0, 10]),
            preemptible=rng.choice([Preemptible.RESTART, Preemptible.AUTO]),
            estimated_s=rng.choice([0.0, 30.0, 300.0]),
        )
        arrivals.append(Arrival(at_s=1 + round(rng.uniform(0, 60), 6), spec=spec))
    return Workload(name=str(seed), arrivals=tuple(arrivals)).sorted()


def lasts_s(spec: JobSpec) -> float:
    return float(spec.command[1])


def stops_in_s(job: int) -> float:
    """Each job takes its own time to stop, so that two that are stopped at once do not end at once."""
    return 0.01 * job


class Scripted:
    """The scripted executor's world, for the simulator: up at once, ends on time, stops soon, keeps nothing."""

    def submitted(self, job: JobRecord, arrival: Arrival) -> None: ...

    def launched(self, job: JobRecord, now_s: float) -> Sequence[Event]:
        assert job.run is not None
        ended = RunEnded(run=job.run.id, reason=ExitReason.FINISHED, at_s=now_s + lasts_s(job.spec), exit_code=0)
        return (RunStarted(run=job.run.id, at_s=now_s), ended)

    def after(self, event: Event, job: JobRecord) -> Sequence[Event]:
        return ()

    def stopping(self, job: JobRecord, now_s: float) -> Sequence[Event]:
        assert job.run is not None
        return (RunEnded(run=job.run.id, reason=ExitReason.STOPPED, at_s=now_s + stops_in_s(job.id)),)

    def lost(self, job: JobRecord, now_s: float) -> None: ...

    def resized(self, job: JobRecord, now_s: float) -> Sequence[Event]:
        return ()

    def fair_s(self, job: JobRecord, share: Mapping[str, float]) -> float:
        return lasts_s(job.spec)


@dataclass
class Told:
    """What a simulation did, and at which moments it did anything."""

    decisions: list[Decision] = field(default_factory=list)
    moments: dict[float, None] = field(default_factory=dict)

    def __call__(self, state: State, event: Event) -> None:
        self.moments[event.at_s] = None
        self.decisions.extend(decision(event))


def decision(event: Event) -> list[Decision]:
    if isinstance(event, RunPlanned | RunResized):
        return [(type(event).__name__, str(event.run), event.at_s, event.allocation)]
    if isinstance(event, RunStopRequested):
        return [("RunStopRequested", str(event.run), event.at_s, event.why)]
    return []


def simulated(load: Workload, policy: str) -> Told:
    told = Told()
    setup = Setup(
        nodes=NODES, policy=policy_named(policy), placer=placer_named("consolidated"), options=OPTIONS, until_s=5000.0
    )
    simulation = Simulation(setup, Scripted(), Book(), (told,))
    simulation.on_pass = lambda now_s: told.moments.setdefault(now_s)
    simulation.run(load)
    return told


class HandClock:
    def __init__(self) -> None:
        self.at_s = 0.0

    def now_s(self) -> float:
        return self.at_s

    def monotonic_s(self) -> float:
        return self.at_s


def prepare(order: Order) -> Launch:
    record = order.record
    assert record.run is not None
    worker = Worker(rank=0, node=record.run.allocation.nodes[0], argv=record.spec.command, env={}, cwd="/")
    return Launch(run=record.run.id, workers=(worker,), grace_s=record.spec.grace_s)


def behave(launch: Launch, worker: Worker) -> Script:
    return Script(lasts_s=float(worker.argv[1]), stop_s=stops_in_s(launch.run.job))


async def lived(load: Workload, policy: str, moments: Sequence[float]) -> list[Decision]:
    """The daemon at the same moments."""
    clock, store, book = HandClock(), MemoryStore(), Book()
    executor = ScriptedExecutor(Theatre(nodes=NODES), clock, behave, prepare)
    engine = Engine(
        committer=Committer(store, Journal(store), book),
        record=store,
        executor=executor,
        book=book,
        clock=clock,
        settings=Settings(
            policy=policy,
            options=OPTIONS,
            timing=Timing(interval_s=0.001, coalesce_s=0.0, patience=Patience(gang_timeout_s=1e9)),
        ),
    )
    await engine.start()
    await quiet(engine)
    waiting = list(load.arrivals)
    for moment in moments:
        clock.at_s = moment
        executor.tick()
        while waiting and waiting[0].at_s <= moment:
            await engine.submit([waiting.pop(0).spec])
        await quiet(engine)
    await engine.stop()
    assert stops_for_nothing([stored.event for stored in store.events()]) == []
    return [found for stored in store.events() for found in decision(stored.event)]


async def quiet(engine: Engine) -> None:
    """Until passes find nothing to do, twice over: what an executor told at the last moment has been heard by then."""
    calm = 0
    while calm < 2:
        seq, passes = engine.state.seq, int(str(engine.health()["passes"]))
        while int(str(engine.health()["passes"])) < passes + 2:
            await asyncio.sleep(0.0005)
        calm = calm + 1 if engine.state.seq == seq and not engine.busy else 0


@pytest.mark.parametrize("seed", range(WORKLOADS))
def test_the_daemon_decides_what_the_simulator_decides(seed: int) -> None:
    policy = POLICIES[seed % len(POLICIES)]
    load = workload(seed)
    told = simulated(load, policy)
    assert told.decisions
    real = asyncio.run(lived(load, policy, sorted(told.moments)))
    assert real == told.decisions
