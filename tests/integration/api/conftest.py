"""The API over real HTTP, with an engine in memory that does what the real one promises, as far as routes can tell."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from swell.api.app import create_app
from swell.api.connections import BoundedProtocol
from swell.api.deps import Context
from swell.api.live import Live
from swell.api.port import PolicyOptions
from swell.config import Config
from swell.core import events as ev
from swell.core.agreement import StopPoint
from swell.core.decision import Reason
from swell.core.errors import Conflict, Infeasible, NotFound
from swell.core.idle import IdleRules
from swell.core.ids import JobId, RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import apply
from swell.core.resources import Allocation, Gpu, Node, NodeCondition, Part
from swell.core.snapshot import Options
from swell.core.state import JobRecord, Run, State
from swell.daemon.accounts import Accounts
from swell.daemon.idle_gpus import IdleGpus
from swell.daemon.latest_order import latest_order
from swell.daemon.listing import lately_ended
from swell.daemon.lookahead import Desk, Done, Request, Simulate, Simulation
from swell.daemon.moments import Moment, Sender, packed, unpacked
from swell.daemon.reports import RankStatus, RunReport, Series, StopView
from swell.daemon.run_leases import LeaseView
from swell.daemon.series import RecentSeries
from swell.daemon.timing import PassTimes
from swell.executors.files import FileRouter
from swell.placement.registry import placer_named
from swell.plan import commands
from swell.policy.registry import policy_named
from swell.ports import Consumption, Files, JobQuery, LogChunk, Order, PastRun, Stored
from swell.sim.forecast import Change, Effect, Interval
from swell.speed.book import Book
from swell.store.projection import consumed, past_run

TOKEN = "t" * 40
GROUPS: dict[str, Callable[[JobRecord], bool]] = {
    "running": lambda r: r.holding,
    "queued": lambda r: not r.holding and not r.ended,
    "ended": lambda r: r.ended,
}


@dataclass
class FakeEngine:
    state: State = field(default_factory=State)
    log_bytes: dict[tuple[RunId, int], bytes] = field(default_factory=dict)
    events: list[Stored] = field(default_factory=list)
    reports: list[tuple[Any, ...]] = field(default_factory=list)
    all_runs: dict[RunId, Run] = field(default_factory=dict)
    now: float = 1000.0
    book: Book = field(default_factory=Book)
    watchers: list[Callable[[Sequence[ev.Event]], None]] = field(default_factory=list)

    @property
    def accounts(self) -> Accounts:
        return Accounts(lambda: self.state, self._commit, self)

    async def _commit(self, events: Sequence[ev.Event]) -> None:
        self.record(*events)

    def monotonic_s(self) -> float:
        return time.monotonic()

    def record(self, *events: ev.Event) -> None:
        for event in events:
            seq = self.state.seq + 1
            apply(self.state, event)
            self.book.learn(event)
            for record in self.state.jobs.values() if hasattr(event, "run") else ():
                if record.run:
                    self.all_runs[record.run.id] = record.run
            self.state.seq = seq
            self.events.append(Stored(seq=seq, event=event))
            for told in self.watchers:
                told([event])

    async def submit(self, specs: Sequence[JobSpec], *, key: str = "", batch: str = "") -> list[JobId]:
        if key and key in self.state.keys:
            first = self.state.keys[key]
            return list(range(first, first + len(specs)))
        if any(spec.gpus.min > 64 for spec in specs):
            raise Infeasible("it needs more GPUs than any node has; lower gpus.min")
        ids: list[JobId] = []
        for spec in specs:
            job = self.state.last_job + 1
            self.record(ev.JobSubmitted(job=job, spec=spec, at_s=self.now, key=key if not ids else "", batch=batch))
            ids.append(job)
        return ids

    async def update(self, job: JobId, wanted: commands.Update, *, by: str) -> None:
        await self.job(job)
        self.record(*commands.update(self.state, job, wanted, by=by, now_s=self.now))

    async def requeue(self, job: JobId, *, by: str) -> None:
        await self.job(job)
        self.record(*commands.requeue(self.state, job, by=by, now_s=self.now))

    async def cancel(self, job: JobId, *, by: str, reason: str = "", at_once: bool = False) -> None:
        record = await self.job(job)
        if record.ended:
            raise Conflict(f"job {job} has ended")
        self.record(ev.JobCancelled(job=job, at_s=self.now, by=by, reason=reason))

    async def pause(self, job: JobId, *, by: str) -> None:
        await self.job(job)
        self.record(ev.JobPaused(job=job, at_s=self.now, by=by))

    async def resume(self, job: JobId, *, by: str) -> None:
        await self.job(job)
        self.record(ev.JobResumed(job=job, at_s=self.now, by=by))

    async def set_priority(self, job: JobId, priority: int, *, by: str) -> None:
        await self.job(job)
        self.record(ev.PriorityChanged(job=job, priority=priority, at_s=self.now, by=by))

    async def remove(self, job: JobId, *, by: str) -> None:
        await self.job(job)
        self.record(ev.JobRemoved(job=job, at_s=self.now, by=by))

    async def renew_lease(self, run: RunId, node: str, boot_s: float) -> LeaseView | None:
        return LeaseView(until_s=boot_s + 60.0, epoch=1, every_s=3.0) if run in self.all_runs else None

    async def add_node(self, node: Node) -> None:
        self.record(ev.NodeObserved(node=node, at_s=self.now))

    async def declare_slots(self, gpus: int | None) -> None:
        """No slots are declared here."""

    async def set_node_condition(self, name: str, condition: NodeCondition, *, why: str = "", by: str = "") -> None:
        if name not in self.state.nodes:
            raise NotFound(f"there is no node {name!r}")
        self.record(ev.NodeConditionChanged(node=name, condition=condition, at_s=self.now, why=why, by=by))

    async def lose_node(self, name: str, *, by: str = "") -> None:
        for event in commands.lose_node(self.state, name, by=by, now_s=self.now):
            self.record(event)

    async def remove_node(self, name: str, *, by: str = "") -> None:
        self.record(ev.NodeRemoved(node=name, at_s=self.now, by=by))

    async def set_policy(self, name: str, placer: str = "", options: PolicyOptions | None = None, by: str = "") -> None:
        policy_named(name)
        if placer:
            placer_named(placer)
        self.record(ev.PolicySet(name=name, placer=placer, options=options or {}, by=by, at_s=self.now))

    async def job(self, job: JobId) -> JobRecord:
        if job not in self.state.jobs:
            raise NotFound(f"there is no job {job}")
        return self.state.jobs[job]

    async def jobs(self, query: JobQuery) -> Sequence[JobRecord]:
        chosen = [
            r
            for r in sorted(self.state.jobs.values(), key=lambda r: -r.id)
            if (query.group == "all" or GROUPS[query.group](r))
            and (not query.user or r.spec.user == query.user)
            and (not query.batch or r.batch == query.batch)
            and (not query.after or r.id < query.after)
            and (r.ended_s is None or r.ended_s >= query.ended_since_s)
        ]
        return chosen[: query.limit]

    def lately_ended(self, query: JobQuery) -> Sequence[JobRecord]:
        return lately_ended(self.state, query)

    async def runs(self, job: JobId) -> Sequence[Run]:
        await self.job(job)
        return [run for run_id, run in self.all_runs.items() if run_id.job == job]

    async def consumed_since(self, since_s: float) -> Sequence[Consumption]:
        return consumed(job for job in self.state.jobs.values() if job.ended_s is not None and job.ended_s >= since_s)

    async def runs_between(self, from_s: float, to_s: float, limit: int) -> Sequence[PastRun]:
        runs = sorted(self.all_runs.values(), key=lambda run: (-run.planned_s, run.id))
        found = [run for run in runs if run.planned_s < to_s and (run.ended_s is None or run.ended_s >= from_s)]
        changes = [stored.event for stored in self.events]
        spec = {run.id.job: self.state.jobs[run.id.job].spec for run in found}
        return [past_run(run, spec[run.id.job].name, spec[run.id.job].user, changes) for run in found[:limit]]

    def reasons(self, job: JobId) -> tuple[Reason, ...]:
        return ()

    def eta(self, job: JobId) -> Interval | None:
        """No forecast here."""
        return None

    def series(self, job: JobId) -> Series:
        return {"loss": ((1.0, 0.5),)} if job == 1 else {}

    async def simulate(self, task: Simulate) -> Simulation:
        moment = Moment(state=self.state, answers={}, options=Options(), now_s=self.now)
        desk = Desk()
        done = unpacked(desk.handle(packed(Request(moment=Sender().difference(moment), task=task))))
        assert isinstance(done, Done)
        assert isinstance(done.result, Simulation), done.failure
        return done.result

    async def what_if(self, change: Change) -> Sequence[Effect]:
        return []

    async def explain(self, job: JobId) -> Mapping[str, object]:
        return {"job": (await self.job(job)).id, "summary": "behind 3 jobs", "sentences": ["behind 3 jobs"]}

    def watch(self, events: Callable[[Sequence[ev.Event]], None], passes: Callable[[PassTimes], None]) -> None:
        self.watchers.append(events)

    @cached_property
    def idle_gpus(self) -> IdleGpus:
        async def do(_: Sequence[ev.Event]) -> None: ...

        return IdleGpus(lambda: self.state, do, RecentSeries(), self, IdleRules())

    first_seq: int = 1

    async def subscribe(self, after_seq: int) -> AsyncIterator[Stored]:
        while True:
            for stored in self.events[after_seq:]:
                after_seq = stored.seq
                yield stored
            await asyncio.sleep(0.01)

    @property
    def files(self) -> Files:
        return FileRouter({})

    async def latest_order(self, job: JobId) -> Order:
        return latest_order(await self.job(job), await self.runs(job), self.state.nodes)

    async def log(self, run: RunId, rank: int, offset: int, limit: int) -> LogChunk:
        if (run, rank) not in self.log_bytes:
            raise NotFound("no log yet")
        data = self.log_bytes[run, rank][offset : offset + limit]
        return LogChunk(data=data, offset=offset, next_offset=offset + len(data), end=False)

    async def log_since(self, run: RunId, rank: int, since_s: float) -> int:
        return self.log_bytes[run, rank].index(b"new")

    def now_s(self) -> float:
        return time.time()

    def health(self) -> dict[str, object]:
        return {"ready": True, "seq": self.state.seq}

    def leftovers(self) -> dict[str, object]:
        return {"undeleted": [], "unknown": {"jobs": 0, "ids": []}}

    async def report(self, run: RunId, report: RunReport) -> StopView:
        self.reports.append((run, report))
        return StopView(stop=StopPoint(at=(report.position[0] + 1, 0)), poll_s=0.5)

    async def await_stop(self, run: RunId, status: RankStatus, wait_s: float) -> StopView:
        self.reports.append((run, status, wait_s))
        return StopView()

    # what tests make happen

    def start(self, job: JobId, gpus: tuple[int, ...] = (0,)) -> RunId:
        run = RunId(job, self.state.jobs[job].attempts + 1)
        allocation = Allocation(parts=(Part(node="here", gpus=gpus),), gpu_type="gpu")
        self.record(
            ev.RunPlanned(run=run, allocation=allocation, at_s=self.now, reason="1 GPU on here"),
            ev.RunStarted(run=run, at_s=self.now),
        )
        self.log_bytes[run, 0] = b""
        return run

    def write(self, run: RunId, data: bytes, rank: int = 0) -> None:
        self.log_bytes[run, rank] = self.log_bytes.get((run, rank), b"") + data

    def stop(self, run: RunId, why: ev.StopWhy = ev.StopWhy.PREEMPTED) -> None:
        self.record(
            ev.RunStopRequested(run=run, why=why, at_s=self.now),
            ev.RunEnded(run=run, reason=ev.ExitReason.STOPPED, at_s=self.now, exit_code=85),
        )

    def end(self, run: RunId, reason: ev.ExitReason = ev.ExitReason.FINISHED, code: int = 0) -> None:
        self.record(ev.RunEnded(run=run, reason=reason, at_s=self.now, exit_code=code))


class Server:
    """uvicorn in a thread; `client` speaks to it."""

    def __init__(self) -> None:
        self.app = create_app(FakeEngine(), TOKEN, Config())
        options = uvicorn.Config(
            self.app, port=0, http=BoundedProtocol, log_config=None, access_log=False, lifespan="off"
        )
        self.server = uvicorn.Server(options)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            self.thread.join(0.01)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=10)

    def renew(self, config: Config) -> "Server":
        self.engine = FakeEngine()
        self.engine.record(
            ev.NodeObserved(node=Node(name="here", gpus=tuple(Gpu(index=i) for i in range(4)), cpus=8), at_s=0.0),
            ev.PolicySet(name="fifo", placer="consolidated", at_s=0.0),
        )
        self.app.state.context = Context(engine=self.engine, config=config)
        self.app.state.live = Live()  # readers of the test before may not have been missed yet
        self.app.state.attempts._peers.clear()
        return self

    def submit(self, document: str = "command: x", **headers: str) -> list[JobId]:
        answer = self.client.post("/v1/jobs", content=document, headers={"content-type": "application/yaml", **headers})
        assert answer.status_code == 201, answer.text
        return [job["id"] for job in answer.json()["jobs"]]

    def close(self) -> None:
        self.client.close()
        self.server.should_exit = self.server.force_exit = True
        self.thread.join(5)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return replace(Config(), home=tmp_path, snapshot_max_mib=1)


@pytest.fixture(scope="session")
def one_server() -> Iterator[Server]:
    served = Server()
    yield served
    served.close()


@pytest.fixture
def server(one_server: Server, config: Config) -> Server:
    return one_server.renew(config)
