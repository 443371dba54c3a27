"""The core of the daemon: takes commands, writes events, sends effects. The API calls it for commands and queries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from swell.core import events as ev
from swell.core.contact import waived
from swell.core.decision import Reason
from swell.core.errors import Conflict, NotFound, StoreError
from swell.core.events import CopiedOutputs, Event
from swell.core.idle import IdleRules
from swell.core.ids import JobId, RunId
from swell.core.job import JobSpec
from swell.core.observations import NodeSeen, Observation
from swell.core.resources import Node, NodeCondition
from swell.core.snapshot import Options
from swell.core.state import JobRecord, Run, State
from swell.daemon.accounts import Accounts
from swell.daemon.checkpoint_copies import CheckpointCopies
from swell.daemon.checkpoint_watch import CheckpointWatch
from swell.daemon.cleanup import Cleanup
from swell.daemon.committer import Committer
from swell.daemon.effects import Effects
from swell.daemon.explaining import Explaining
from swell.daemon.forecasts import Forecasts
from swell.daemon.health import health, leftovers
from swell.daemon.job_id_watermark import JobIdWatermark
from swell.daemon.latest_order import latest_order
from swell.daemon.listing import IN_MEMORY, active_jobs, lately_ended
from swell.daemon.logwatch import LogWatch
from swell.daemon.lookahead import Simulate, Simulation
from swell.daemon.observing import Observing
from swell.daemon.outputs import Collect, Outputs
from swell.daemon.passes import Passes, Timing
from swell.daemon.reports import RankStatus, RunReport, Series, StopView
from swell.daemon.run_leases import LeaseView, Leasing, RunLeases
from swell.daemon.stops import Stops
from swell.daemon.submitting import Submitting
from swell.daemon.supervisor import Supervisor
from swell.daemon.timing import PassTimes
from swell.daemon.watch import events_seen
from swell.placement.registry import DEFAULT_PLACER, placer_named
from swell.plan import commands
from swell.plan.admit import check_feasible
from swell.plan.explain import Explanation
from swell.plan.snapshotter import Snapshotter
from swell.policy.registry import DEFAULT_POLICY, check_name, check_options
from swell.ports import (
    Check,
    Checkpoints,
    Clock,
    Consumption,
    Executor,
    Files,
    JobQuery,
    LogChunk,
    Order,
    PastRun,
    Record,
    Stored,
)
from swell.sim.forecast import Change, Effect, Interval
from swell.speed.describe import DescribedBook

ADOPTION_S = 5.0
"""A start waits at most this long for executors to report what runs before the first decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the engine needs of the configuration."""

    policy: str = ""
    placer: str = ""
    options: Options = field(default_factory=Options)
    idle_gpus: IdleRules = field(default_factory=IdleRules)
    timing: Timing = field(default_factory=Timing)
    id_file: Path | None = None  # keeps the highest job id over changes of the database
    checkpoint_copy_every_s: float = 30.0
    job_dirs: tuple[str, ...] = ()  # parents of per-job directories on nodes


class FarMachines(Protocol):
    """Connects to the machines that people declare, and disconnects from those that they remove."""

    def know(self, nodes: Mapping[str, Node]) -> None: ...

    async def waive(self) -> None:
        """Lets the runs there continue without a daemon, with leases that do not expire."""
        ...


class Engine:
    """One per state directory. `start`, then commands and queries from the same event loop, then `stop`."""

    def __init__(
        self,
        *,
        committer: Committer,
        record: Record,
        executor: Executor,
        book: DescribedBook,
        clock: Clock,
        settings: Settings,
        checkpoint_dir_of: Callable[[JobRecord], Path] = lambda record: Path(record.spec.checkpoint_dir),
        kept_here: Callable[[], Sequence[JobId]] = tuple,
        declare: Callable[[int | None], Awaitable[Node]] | None = None,
        machines: FarMachines | None = None,
        leases: Leasing | None = None,
        files: Files | None = None,
        checkpoints: Checkpoints | None = None,
        collect: Collect | None = None,
        findings: Callable[[], Sequence[Check]] = tuple,
    ) -> None:
        """`kept_here`: jobs with files on the daemon's own machine. `declare`: sets the number of slots of that machine
        and returns its new inventory. `machines`: connects to declared ones. `leases`: of pods.
        `findings`: see `health`."""
        self._committer = committer
        self._record = record
        self._executor = executor
        self._files = files
        self._findings = findings
        self._clock, self._settings = clock, settings
        self.book = book
        self._effects = Effects(executor, lambda: self.state, self._observed, clock.now_s)
        self._passes = Passes(
            committer, Snapshotter(book), self._effects, clock, options=settings.options, timing=settings.timing
        )
        self._stops = Stops(committer, clock)
        self._submitting = Submitting(committer, self._commit, clock, settings.options)
        self.accounts = Accounts(lambda: self.state, self._commit, clock)
        self._logs = LogWatch(lambda: self.state, executor.log, self._commit, clock.now_s)
        self._checkpoints = CheckpointWatch(lambda: self.state, checkpoint_dir_of, self._commit, clock.now_s)
        self._copies: CheckpointCopies | None = None
        if checkpoints is not None:
            every_s = settings.checkpoint_copy_every_s
            self._copies = CheckpointCopies(lambda: self.state, checkpoints, self._commit, clock, every_s)
        self._forecasts = Forecasts()
        self._cleanup = Cleanup(executor, record, lambda: self.state)
        self._observing = Observing(
            committer,
            self._effects,
            self._stops,
            self._cleanup,
            self._logs,
            self._checkpoints,
            clock,
            commit=self._commit,
            do=self._do,
            idle=settings.idle_gpus,
        )
        self.idle_gpus = self._observing.idle_gpus
        self._explaining = Explaining(committer, self._passes, self._forecasts, book, clock, self.idle_gpus)
        self._leases = RunLeases(lambda: self.state, self._observing.contacts, clock, leases or Leasing())
        self._gone = False
        self._outputs = Outputs(lambda: self.state, collect or _collect_nothing, self._commit, clock.now_s)
        self._ids = JobIdWatermark(settings.id_file)
        self._kept_here, self._declare, self._machines = kept_here, declare, machines
        if machines is not None:
            committer.listeners += [self._nodes_changed]
        committer.listeners += [self._stops.wake, self._cleanup.happened, self._outputs.happened, self._ids.happened]
        committer.listeners += [self._observing.series.happened]
        committer.listeners += [lambda events: self._forecasts.happened(events, self.state)]
        committer.found += [self._found]
        self.tasks = Supervisor()

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load the state, choose the policy, start the tasks: observe what runs, then decide."""
        await self._committer.open()
        await self._skip_ids(await asyncio.to_thread(self._kept_here))
        await self._choose_policy()
        if self._machines is not None:
            self._machines.know(self.state.nodes)
        for record in self._holding():
            # A launch is idempotent: this starts runs that were on disk but not started before a crash.
            self._effects.launch(record)
        self.tasks.start("recovery", self._committer.keep_healthy)
        self.tasks.start("checkpoints", self._committer.keep_checkpoints)
        self.tasks.start("watch", self._watch)
        self.tasks.start("contacts", self._observing.contacts.run)
        self.tasks.start("passes", self._decide)
        self.tasks.start("forecasts", lambda: self._forecasts.run(self._explaining.moment))
        self.tasks.start("logs", self._logs.run)
        self.tasks.start("training checkpoints", self._checkpoints.run)
        if self._copies is not None:
            self.tasks.start("checkpoint copies", self._copies.run)
        self.tasks.start("cleanup", self._cleanup.run)
        self.tasks.start("idle GPUs", self.idle_gpus.run)
        self.tasks.start("outputs", self._outputs.run)
        self.tasks.start("ids", self._ids.run)

    def _holding(self) -> list[JobRecord]:
        return [self.state.jobs[job] for job in self.state.active if self.state.jobs[job].holding]

    async def _decide(self) -> None:
        """Adopt the runs before the first pass: they may have progressed, or ended, while no daemon was there."""
        if self._holding():
            with suppress(TimeoutError):
                async with asyncio.timeout(ADOPTION_S):
                    await self._observing.adopted.wait()
        await self._passes.run()

    def _found(self, events: Sequence[Event]) -> None:
        """A write that the store seemed to refuse is on disk after all: carry out its effects now."""
        self._passes.carry_out(events)
        self._observing.ended_with_their_machine(events)
        self._passes.wake()

    async def _skip_ids(self, kept: Sequence[JobId]) -> None:
        through = await asyncio.to_thread(self._ids.foreign, self.state.last_job, kept)
        if through > self.state.last_job:
            await self._committer.commit([ev.IdsSkipped(through=through, at_s=self._clock.now_s())])
        self._ids.reached(self.state.last_job)

    async def _choose_policy(self) -> None:
        state = self.state
        name = state.policy or self._settings.policy or DEFAULT_POLICY
        placer = state.placer or self._settings.placer or DEFAULT_PLACER
        if not state.policy:
            await self._committer.commit(
                [ev.PolicySet(name=name, placer=placer, at_s=self._clock.now_s(), options=state.policy_options)]
            )
        check_name(name)
        self._passes.decider.choose(name, placer_named(placer).name)

    async def stop(self) -> None:
        """Stop the daemon only: jobs keep running, and the next start adopts them."""
        await self.let_go()
        await self.tasks.stop()
        await self._forecasts.stop()
        await self._committer.stop_waiting()
        await self._effects.settle()
        await self._committer.close()
        await asyncio.to_thread(self._ids.write)

    def _nodes_changed(self, events: Sequence[Event]) -> None:
        if self._machines is not None and any(isinstance(event, ev.NodeObserved | ev.NodeRemoved) for event in events):
            self._machines.know(self.state.nodes)

    async def let_go(self) -> None:
        """Before a planned stop: waives leases of runs on other machines, so that they outlive it. Pods must ask for
        that, so this is called while the API still answers. A second call does nothing."""
        if self._gone or self._committer.failure is not None:
            return
        self._gone = True
        with suppress(StoreError):
            await self._commit(waived(self.state, self._clock.now_s()))
            if self._machines is not None:
                await self._machines.waive()
            await self._leases.let_go()

    @property
    def busy(self) -> bool:
        """Whether an event is not on disk yet or a command has no answer yet."""
        return self._effects.under_way or self._cleanup.under_way or self._committer.durable_seq < self.state.seq

    async def _watch(self) -> None:
        known = [record.run.id for record in self._holding() if record.run is not None]
        async for seen in self._executor.observe(known):
            await self._observed(seen)

    async def _observed(self, seen: Observation) -> None:
        await self._observing.observed(seen)

    async def _commit(self, events: Sequence[Event]) -> None:
        if events:
            await self._committer.commit(events)
            self._passes.wake()

    # -- commands -----------------------------------------------------------------------------------------------------

    async def submit(self, specs: Sequence[JobSpec], *, key: str = "", batch: str = "") -> list[JobId]:
        return await self._submitting.submit(specs, key=key, batch=batch)

    async def cancel(self, job: JobId, *, by: str, reason: str = "", at_once: bool = False) -> None:
        now_s = self._clock.now_s()
        await self._do(commands.cancel(self.state, job, by=by, reason=reason, now_s=now_s, at_once=at_once))

    async def update(self, job: JobId, wanted: commands.Update, *, by: str) -> None:
        events = commands.update(self.state, job, wanted, by=by, now_s=self._clock.now_s())
        if wanted.gpus is not None:
            spec = replace(self.state.jobs[job].spec, gpus=wanted.gpus)
            check_feasible(spec, list(self.state.nodes.values()))
        await self._do(events)

    async def requeue(self, job: JobId, *, by: str) -> None:
        await self._do(commands.requeue(self.state, job, by=by, now_s=self._clock.now_s()))

    async def pause(self, job: JobId, *, by: str) -> None:
        await self._do(commands.pause(self.state, job, by=by, now_s=self._clock.now_s()))

    async def resume(self, job: JobId, *, by: str) -> None:
        await self._do(commands.resume(self.state, job, by=by, now_s=self._clock.now_s()))

    async def set_priority(self, job: JobId, priority: int, *, by: str) -> None:
        await self._do(commands.set_priority(self.state, job, priority, by=by, now_s=self._clock.now_s()))

    async def remove(self, job: JobId, *, by: str) -> None:
        """Stops a job that has not ended. Takes an ended one out of the record and deletes its files on nodes in the
        background."""
        await self.job(job)  # one that ended long ago is only in the store
        now_s, dirs = self._clock.now_s(), self._settings.job_dirs
        await self._do(commands.remove(self.state, job, by=by, now_s=now_s, dirs=dirs))

    async def _do(self, events: Sequence[Event]) -> None:
        await self._commit(events)
        self._passes.carry_out(events)

    async def add_node(self, node: Node) -> None:
        await self._do(commands.add_node(node, now_s=self._clock.now_s()))

    async def declare_slots(self, gpus: int | None) -> None:
        """Set the number of slots on the daemon's own machine; None: the GPUs that it finds."""
        if self._declare is None:
            raise Conflict("this daemon has no machine of its own; add machines with `swell node add`")
        seen = NodeSeen(node=await self._declare(gpus), at_s=self._clock.now_s())
        await self._do(events_seen(self.state, seen, signalled=False))

    async def set_node_condition(self, name: str, condition: NodeCondition, *, why: str = "", by: str = "") -> None:
        now_s = self._clock.now_s()
        await self._do(commands.set_node_condition(self.state, name, condition, why=why, by=by, now_s=now_s))

    async def lose_node(self, name: str, *, by: str = "") -> None:
        """An operator reports a machine as lost: its runs end now, and jobs that can continue elsewhere do."""
        events = commands.lose_node(self.state, name, by=by, now_s=self._clock.now_s())
        await self._commit(events)
        self._observing.ended_with_their_machine(events)

    async def remove_node(self, name: str, *, by: str = "") -> None:
        await self._do(commands.remove_node(self.state, name, by=by, now_s=self._clock.now_s()))

    async def set_policy(
        self,
        name: str,
        placer: str = "",
        options: Mapping[str, float | int | str | bool] | None = None,
        by: str = "",
    ) -> None:
        check_options(name, options or {})
        chosen_placer = placer_named(placer or self.state.placer or DEFAULT_PLACER)
        event = ev.PolicySet(
            name=name, placer=chosen_placer.name, options=options or {}, by=by, at_s=self._clock.now_s()
        )
        await self._do([event])
        self._passes.decider.choose(name, chosen_placer.name)
        self._passes.wake()

    # -- queries ------------------------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        return self._committer.cluster_id

    @property
    def state(self) -> State:
        return self._committer.state

    async def job(self, job: JobId) -> JobRecord:
        record = self.state.jobs.get(job) or await asyncio.to_thread(self._record.job, job)
        if record is None:
            raise NotFound(f"there is no job {job}; `swell ls --all` lists the jobs there are")
        return record

    async def jobs(self, query: JobQuery) -> Sequence[JobRecord]:
        if query.group in IN_MEMORY and self._committer.durable_seq >= self.state.seq:
            return active_jobs(self.state, query)
        return await asyncio.to_thread(self._record.jobs, query)

    def lately_ended(self, query: JobQuery) -> Sequence[JobRecord]:
        return lately_ended(self.state, query)

    async def runs(self, job: JobId) -> Sequence[Run]:
        """All attempts. The latest comes from memory, because the tables may not have it yet."""
        stored = await asyncio.to_thread(self._record.runs, job)
        record = self.state.jobs.get(job)
        if record is None or record.run is None:
            return stored
        return [*(run for run in stored if run.id != record.run.id), record.run]

    @property
    def files(self) -> Files:
        if self._files is None:
            raise NotFound("this daemon has no files of jobs")
        return self._files

    async def latest_order(self, job: JobId) -> Order:
        return latest_order(await self.job(job), await self.runs(job), self.state.nodes)

    async def consumed_since(self, since_s: float) -> Sequence[Consumption]:
        """What the jobs of each user and team consumed that ended since `since_s`."""
        return await asyncio.to_thread(self._record.consumed_since, since_s)

    async def runs_between(self, from_s: float, to_s: float, limit: int) -> Sequence[PastRun]:
        return await asyncio.to_thread(self._record.runs_between, from_s, to_s, limit)

    def reasons(self, job: JobId) -> tuple[Reason, ...]:
        return self._passes.reasons(job)

    async def explain(self, job: JobId) -> Explanation:
        return await self._explaining.explain(await self.job(job))

    def eta(self, job: JobId) -> Interval | None:
        return self._explaining.eta(job)

    def series(self, job: JobId) -> Series:
        """Recent measurements of the job's library, since the daemon started."""
        return self._observing.series.of(job)

    async def what_if(self, change: Change) -> Sequence[Effect]:
        return await self._explaining.what_if(change)

    async def simulate(self, task: Simulate) -> Simulation:
        return await self._explaining.simulate(task)

    def watch(self, events: Callable[[Sequence[Event]], None], passes: Callable[[PassTimes], None]) -> None:
        """Subscribes to durable events and to the times of passes. Listeners must be quick and never raise."""
        self._committer.listeners.append(events)
        self._passes.watchers.append(passes)

    @property
    def first_seq(self) -> int:
        """The number of the first event that is still in the log."""
        return self._committer.first_seq

    def subscribe(self, after_seq: int) -> AsyncIterator[Stored]:
        return self._committer.follow(after_seq)

    async def log(self, run: RunId, rank: int, offset: int, limit: int) -> LogChunk:
        return await self._executor.log(run, rank, offset, limit)

    async def log_since(self, run: RunId, rank: int, since_s: float) -> int:
        return await self._executor.log_since(run, rank, self.now_s() - since_s)

    def now_s(self) -> float:
        """The time of the daemon's clock."""
        return self._clock.now_s()

    def health(self) -> dict[str, object]:
        return health(self._committer, self.tasks, self._passes, self._forecasts, self._findings(), self.now_s())

    def leftovers(self) -> dict[str, object]:
        return leftovers(self._cleanup, self.state)

    # -- training code ------------------------------------------------------------------------------------------------

    async def renew_lease(self, run: RunId, node: str, boot_s: float) -> LeaseView | None:
        return await self._leases.renew(run, node, boot_s)

    async def report(self, run: RunId, report: RunReport) -> StopView:
        """Records what one rank of a run reports. Durable on return, so the library can drop its copy."""
        await self._observing.report(run, report)
        return await self._stops.heard(run, report)

    async def await_stop(self, run: RunId, status: RankStatus, wait_s: float) -> StopView:
        """Long poll for the stop position of this rank: returns when it changes, at the latest after `wait_s`."""
        return await self._stops.wait(run, status, wait_s)


async def _collect_nothing(_: JobRecord) -> CopiedOutputs:
    return CopiedOutputs(problem="this daemon has no files of jobs")
