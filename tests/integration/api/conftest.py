"""The API over real HTTP, with an engine in memory that does what the real one promises, as far as routes can tell."""

import asyncio
import threading
import time
from dataclasses import dataclass, field, replace

import httpx
import pytest
import uvicorn

from swell.api.app import create_app
from swell.api.connections import BoundedProtocol
from swell.api.deps import Context
from swell.config import Config
from swell.core import events as ev
from swell.core.agreement import StopPoint
from swell.core.errors import Conflict, Infeasible, NotFound
from swell.core.ids import RunId
from swell.core.lifecycle import apply
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.core.state import State
from swell.daemon.reports import StopView
from swell.placement.registry import placer_named
from swell.policy.registry import policy_named
from swell.ports import LogChunk, Stored
from swell.speed.book import Book
from swell.store.projection import past_run

TOKEN = "t" * 40
GROUPS = {"running": lambda r: r.holding, "queued": lambda r: not r.holding and not r.ended, "ended": lambda r: r.ended}


@dataclass
class FakeEngine:
    state: State = field(default_factory=State)
    log_bytes: dict = field(default_factory=dict)
    events: list = field(default_factory=list)
    reports: list = field(default_factory=list)
    all_runs: dict = field(default_factory=dict)
    now: float = 1000.0
    book: Book = field(default_factory=Book)
    watchers: list = field(default_factory=list)

    def record(self, *events):
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

    async def submit(self, specs, *, key="", batch=""):
        if key and key in self.state.keys:
            first = self.state.keys[key]
            return list(range(first, first + len(specs)))
        if any(spec.gpus.min > 64 for spec in specs):
            raise Infeasible("it needs more GPUs than any node has; lower gpus.min")
        ids = []
        for spec in specs:
            job = self.state.last_job + 1
            self.record(ev.JobSubmitted(job=job, spec=spec, at_s=self.now, key=key if not ids else "", batch=batch))
            ids.append(job)
        return ids

    async def cancel(self, job, *, by, reason=""):
        record = await self.job(job)
        if record.ended:
            raise Conflict(f"job {job} has ended")
        self.record(ev.JobCancelled(job=job, at_s=self.now, by=by, reason=reason))

    async def pause(self, job, *, by):
        await self.job(job)
        self.record(ev.JobPaused(job=job, at_s=self.now, by=by))

    async def resume(self, job, *, by):
        await self.job(job)
        self.record(ev.JobResumed(job=job, at_s=self.now, by=by))

    async def set_priority(self, job, priority, *, by):
        await self.job(job)
        self.record(ev.PriorityChanged(job=job, priority=priority, at_s=self.now, by=by))

    async def remove(self, job, *, by):
        await self.job(job)
        self.record(ev.JobRemoved(job=job, at_s=self.now, by=by))

    async def add_node(self, node):
        self.record(ev.NodeObserved(node=node, at_s=self.now))

    async def set_node_condition(self, name, condition, *, why="", by=""):
        if name not in self.state.nodes:
            raise NotFound(f"there is no node {name!r}")
        self.record(ev.NodeConditionChanged(node=name, condition=condition, at_s=self.now, why=why, by=by))

    async def remove_node(self, name, *, by=""):
        self.record(ev.NodeRemoved(node=name, at_s=self.now, by=by))

    async def set_policy(self, name, placer="", options=None, by=""):
        policy_named(name)
        if placer:
            placer_named(placer)
        self.record(ev.PolicySet(name=name, placer=placer, options=options or {}, by=by, at_s=self.now))

    async def job(self, job):
        if job not in self.state.jobs:
            raise NotFound(f"there is no job {job}")
        return self.state.jobs[job]

    async def jobs(self, query):
        chosen = [
            r
            for r in sorted(self.state.jobs.values(), key=lambda r: -r.id)
            if (query.group == "all" or GROUPS[query.group](r))
            and (not query.user or r.spec.user == query.user)
            and (not query.batch or r.batch == query.batch)
            and (not query.after or r.id < query.after)
        ]
        return chosen[: query.limit]

    async def runs(self, job):
        await self.job(job)
        return [run for run_id, run in self.all_runs.items() if run_id.job == job]

    async def runs_between(self, from_s, to_s, limit):
        runs = sorted(self.all_runs.values(), key=lambda run: (-run.planned_s, run.id))
        found = [run for run in runs if run.planned_s < to_s and (run.ended_s is None or run.ended_s >= from_s)]
        changes = [stored.event for stored in self.events]
        spec = {run.id.job: self.state.jobs[run.id.job].spec for run in found}
        return [past_run(run, spec[run.id.job].name, spec[run.id.job].user, changes) for run in found[:limit]]

    def reasons(self, job):
        return ()

    def eta(self, job):
        """No forecast here."""

    def series(self, job):
        return {"loss": ((1.0, 0.5),)} if job == 1 else {}

    async def what_if(self, change):
        return []

    async def explain(self, job):
        return {"job": (await self.job(job)).id, "summary": "behind 3 jobs", "sentences": ["behind 3 jobs"]}

    def watch(self, events, passes):
        self.watchers.append(events)

    async def subscribe(self, after_seq):
        while True:
            for stored in self.events[after_seq:]:
                after_seq = stored.seq
                yield stored
            await asyncio.sleep(0.01)

    async def log(self, run, rank, offset, limit):
        if (run, rank) not in self.log_bytes:
            raise NotFound("no log yet")
        data = self.log_bytes[run, rank][offset : offset + limit]
        return LogChunk(data=data, offset=offset, next_offset=offset + len(data), end=False)

    def now_s(self):
        return time.time()

    def health(self):
        return {"ready": True, "seq": self.state.seq}

    def leftovers(self):
        return {"undeleted": [], "unknown": {"jobs": 0, "ids": []}}

    async def report(self, run, report):
        self.reports.append((run, report))
        return StopView(stop=StopPoint(at=(report.position[0] + 1, 0)), poll_s=0.5)

    async def await_stop(self, run, rank, position, ack, wait_s, *, world_size=0, steps=False, terminating=False):
        self.reports.append((run, rank, position, ack, wait_s))
        return StopView()

    # what tests make happen

    def start(self, job, gpus=(0,)):
        run = RunId(job, self.state.jobs[job].attempts + 1)
        allocation = Allocation(parts=(Part(node="here", gpus=gpus),), gpu_type="gpu")
        self.record(
            ev.RunPlanned(run=run, allocation=allocation, at_s=self.now, reason="1 GPU on here"),
            ev.RunStarted(run=run, at_s=self.now),
        )
        self.log_bytes[run, 0] = b""
        return run

    def write(self, run, data, rank=0):
        self.log_bytes[run, rank] = self.log_bytes.get((run, rank), b"") + data

    def stop(self, run, why=ev.StopWhy.PREEMPTED):
        self.record(
            ev.RunStopRequested(run=run, why=why, at_s=self.now),
            ev.RunEnded(run=run, reason=ev.ExitReason.STOPPED, at_s=self.now, exit_code=85),
        )

    def end(self, run, reason=ev.ExitReason.FINISHED, code=0):
        self.record(ev.RunEnded(run=run, reason=reason, at_s=self.now, exit_code=code))


class Server:
    """uvicorn in a thread; `client` speaks to it."""

    def __init__(self):
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

    def renew(self, config):
        self.engine = FakeEngine()
        self.engine.record(
            ev.NodeObserved(node=Node(name="here", gpus=tuple(Gpu(index=i) for i in range(4)), cpus=8), at_s=0.0),
            ev.PolicySet(name="fifo", placer="consolidated", at_s=0.0),
        )
        self.app.state.context = Context(engine=self.engine, config=config)
        self.app.state.attempts._peers.clear()
        return self

    def submit(self, document="command: x", **headers):
        answer = self.client.post("/v1/jobs", content=document, headers={"content-type": "application/yaml", **headers})
        assert answer.status_code == 201, answer.text
        return [job["id"] for job in answer.json()["jobs"]]

    def close(self):
        self.client.close()
        self.server.should_exit = self.server.force_exit = True
        self.thread.join(5)


@pytest.fixture
def config(tmp_path):
    return replace(Config(), home=tmp_path, snapshot_max_mib=1)


@pytest.fixture(scope="session")
def one_server():
    served = Server()
    yield served
    served.close()


@pytest.fixture
def server(one_server, config):
    return one_server.renew(config)
