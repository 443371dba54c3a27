"""The daemon without its edges: commands in, events on disk, effects out. The API and the command line call this."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from swell.core import events as ev
from swell.core.agreement import Position
from swell.core.contact import waived
from swell.core.decision import Reason
from swell.core.errors import Conflict, NotFound, StoreError
from swell.core.events import CopiedOutputs, Event, ExitReason
from swell.core.ids import JobId, RunId
from swell.core.job import JobSpec
from swell.core.resources import Node, NodeCondition, gpus_per_node
from swell.core.snapshot import Options
from swell.core.state import ENDED, JobRecord, JobState, Run, State, was_given
from swell.daemon.accounts import Accounts
from swell.daemon.checkpoint_watch import CheckpointWatch
from swell.daemon.cleanup import Cleanup
from swell.daemon.committer import Committer
from swell.daemon.contacts import Contacts
from swell.daemon.effects import Effects
from swell.daemon.forecasts import Forecasts, forecast_sentence
from swell.daemon.job_id_watermark import JobIdWatermark
from swell.daemon.latest_order import latest_order
from swell.daemon.listing import IN_MEMORY, active_jobs
from swell.daemon.logwatch import LogWatch
from swell.daemon.moments import Moment
from swell.daemon.outputs import Collect, Outputs
from swell.daemon.passes import Passes, Timing
from swell.daemon.reports import RunReport, Series, StopView
from swell.daemon.series import RecentSeries
from swell.daemon.stops import Stops
from swell.daemon.supervisor import Supervisor
from swell.daemon.timing import PassTimes
from swell.daemon.watch import events_seen
from swell.placement.registry import DEFAULT_PLACER, placer_named
from swell.plan import commands
from swell.plan.admit import check_feasible
from swell.plan.explain import Explanation, explain
from swell.plan.sizes import of_size
from swell.plan.snapshotter import DEFAULT_RESTART_COST_S, Snapshotter
from swell.policy.registry import DEFAULT_POLICY, check_name, check_options
from swell.ports import (
    Adopted,
    Clock,
    Executor,
    Files,
    FilesFound,
    JobQuery,
    LogChunk,
    NodeGone,
    NodeHeard,
    NodeSeen,
    Observation,
    Order,
    PastRun,
    Record,
    RunGone,
    RunProgress,
    Stored,
)
from swell.sim.forecast import Change, Effect, Interval, copy_of
from swell.speed.describe import DescribedBook

log = logging.getLogger(__name__)

ADOPTION_S = 5.0
"""At a start nothing is decided before executors have told what runs, or this time is over."""
DECIDES = ("recovery", "watch", "passes")
"""Tasks without which nothing is decided, or not from what is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the engine needs of the configuration."""

    policy: str = ""
    placer: str = ""
    options: Options = field(default_factory=Options)
    timing: Timing = field(default_factory=Timing)
    id_file: Path | None = None  # remembers the highest job id that was given, for whatever database comes next
    job_dirs: tuple[str, ...] = ()  # where nodes keep a directory a job, as far as its path tells them from others


class FarMachines(Protocol):
    """Reaches machines as they are declared and removed."""

    def know(self, nodes: Mapping[str, Node]) -> None: ...

    async def waive(self) -> None:
        """Let what runs there go on without a daemon, for ever."""
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
        files: Files | None = None,
        collect: Collect = lambda _: CopiedOutputs(problem="this daemon has no files of jobs"),
    ) -> None:
        """`kept_here`: jobs of which there are files on the daemon's own machine. `declare`: changes how many slots
        that machine has, and looks at it again. `machines`: whoever reaches those that are declared."""
        self._committer = committer
        self._record = record
        self._executor = executor
        self._files = files
        self._clock = clock
        self._settings = settings
        self.book = book
        self._adopted = asyncio.Event()
        self._reported: dict[RunId, int] = {}  # epochs that a run reported itself, where its own record was ahead
        self._effects = Effects(executor, lambda: self.state, self._observed, clock.now_s)
        self._passes = Passes(
            committer, Snapshotter(book), self._effects, clock, options=settings.options, timing=settings.timing
        )
        self._contacts = Contacts(
            lambda: self.state,
            self._commit_contact,
            self._effects.kill_old,
            self._effects.reached,
            clock,
        )
        self._stops = Stops(committer, clock)
        self.accounts = Accounts(lambda: self.state, self._commit, clock)
        self._series = RecentSeries()
        self._logs = LogWatch(lambda: self.state, executor.log, self._commit, clock.now_s)
        self._checkpoints = CheckpointWatch(lambda: self.state, checkpoint_dir_of, self._commit, clock.now_s)
        self._forecasts = Forecasts()
        self._cleanup = Cleanup(executor, record, lambda: self.state)
        self._outputs = Outputs(lambda: self.state, collect, self._commit, clock.now_s)
        self._ids = JobIdWatermark(settings.id_file)
        self._kept_here = kept_here
        self._declare = declare
        self._machines = machines
        if machines is not None:
            committer.listeners += [self._nodes_changed]
        committer.listeners += [self._stops.wake, self._cleanup.happened, self._outputs.happened, self._ids.happened]
        committer.listeners += [lambda events: self._forecasts.happened(events, self.state)]
        committer.found += [self._found]
        self.tasks = Supervisor()

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Load, choose the policy, look at what runs, and begin to decide."""
        await self._committer.open()
        await self._skip_ids(await asyncio.to_thread(self._kept_here))
        await self._choose_policy()
        if self._machines is not None:
            self._machines.know(self.state.nodes)
        for record in self._holding():
            # Sent twice, done once: what was on disk but not started before a crash is started now.
            self._effects.launch(record)
        self.tasks.start("recovery", self._committer.keep_healthy)
        self.tasks.start("checkpoints", self._committer.keep_checkpoints)
        self.tasks.start("watch", self._watch)
        self.tasks.start("contacts", self._contacts.run)
        self.tasks.start("passes", self._decide)
        self.tasks.start("forecasts", lambda: self._forecasts.run(self._moment))
        self.tasks.start("logs", self._logs.run)
        self.tasks.start("training checkpoints", self._checkpoints.run)
        self.tasks.start("cleanup", self._cleanup.run)
        self.tasks.start("outputs", self._outputs.run)
        self.tasks.start("ids", self._ids.run)

    def _holding(self) -> list[JobRecord]:
        return [self.state.jobs[job] for job in self.state.active if self.state.jobs[job].holding]

    async def _decide(self) -> None:
        """What runs is looked at first: a training may have gone on, or ended, while no daemon was there."""
        if self._holding():
            with suppress(TimeoutError):
                async with asyncio.timeout(ADOPTION_S):
                    await self._adopted.wait()
        await self._passes.run()

    def _found(self, events: Sequence[Event]) -> None:
        """A write that the store seemed to refuse is on disk after all: what follows from it is done now."""
        self._passes.carry_out(events)
        self._ended_with_their_machine(events)
        self._passes.wake()

    async def _skip_ids(self, kept: Sequence[JobId]) -> None:
        """Files under an id that this database has not given yet are of a job of another one: a database that was
        deleted, or that a backup replaced. A new job of that id would run its code and resume from its checkpoint."""
        foreign = [job for job in kept if job > self.state.last_job]
        through = max(*foreign, await asyncio.to_thread(self._ids.read), 0)
        if through > self.state.last_job:
            log.warning(
                "another database has given job ids up to %d here (of %d of these jobs there are files, which are left "
                "alone); new jobs begin with %d",
                *(through, len(foreign), through + 1),
            )
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
        """Graceful: jobs go on running; the next start adopts them."""
        await self._waive()
        await self.tasks.stop()
        await self._forecasts.stop()
        await self._committer.stop_waiting()
        await self._effects.settle()
        await self._committer.close()
        await asyncio.to_thread(self._ids.write)

    def _nodes_changed(self, events: Sequence[Event]) -> None:
        if self._machines is not None and any(isinstance(event, ev.NodeObserved | ev.NodeRemoved) for event in events):
            self._machines.know(self.state.nodes)

    async def _waive(self) -> None:
        """Planned maintenance costs nothing: runs elsewhere may go on without a daemon."""
        if self._machines is None or self._committer.failure is not None:
            return
        with suppress(StoreError):
            await self._commit(waived(self.state, self._clock.now_s()))
            await self._machines.waive()

    @property
    def busy(self) -> bool:
        """Something is not on disk yet, or asked of an executor and not carried out yet."""
        return self._effects.under_way or self._cleanup.under_way or self._committer.durable_seq < self.state.seq

    async def _watch(self) -> None:
        known = [record.run.id for record in self._holding() if record.run is not None]
        async for seen in self._executor.observe(known):
            await self._observed(seen)

    async def _observed(self, seen: Observation) -> None:
        """Record what an executor saw. An outage of the store does not lose it: it waits until it can be written."""
        if isinstance(seen, FilesFound):
            self._cleanup.found(seen.jobs)
        await self._committer.healthy()
        if isinstance(seen, NodeHeard):
            await self._contacts.heard(seen)
            return
        if isinstance(seen, RunGone) and seen.reason in (ExitReason.FINISHED, ExitReason.STOPPED):
            await self._logs.ended(seen.run, well=seen.reason is ExitReason.FINISHED)
        while True:
            await self._committer.healthy()  # before that the state may hold this, though no disk does
            try:
                signalled = isinstance(seen, RunGone) and self._effects.signalled(seen.run)
                events = events_seen(self.state, seen, signalled=signalled)
                if isinstance(seen, RunProgress) and events:
                    began = any(isinstance(event, ev.TrainingBegan) for event in events)
                    known = seen.resumed if began else self.state.jobs[seen.run.job].epochs_done
                    self._reported.setdefault(seen.run, known)
                await self._commit(events)
            except StoreError:
                continue
            break
        if isinstance(seen, NodeGone):
            self._ended_with_their_machine(events)
        if isinstance(seen, Adopted):
            self._adopted.set()
        if isinstance(seen, RunGone):
            if seen.reason is ExitReason.FINISHED and not events:  # of a run that had been given up
                with suppress(StoreError):  # then its work is done again
                    await self._do(commands.result_stands(self.state, seen.run, now_s=self._clock.now_s()))
            self._effects.ended(seen.run)
            self._stops.ended(seen.run)
            self._reported.pop(seen.run, None)

    async def _commit_contact(self, events: Sequence[Event]) -> None:
        """What changes about a machine; a store that refuses it now is told at the next look. Runs that end with their
        machine are ended here as well."""
        if self._committer.failure is not None:
            return
        with suppress(StoreError):
            await self._commit(events)
            self._ended_with_their_machine(events)

    def _ended_with_their_machine(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, ev.RunEnded):
                self._effects.ended(event.run)
                if event.reason is ExitReason.NODE_LOST:
                    self._effects.kill_old(event.run)  # where else it had workers
                self._stops.ended(event.run)
                self._reported.pop(event.run, None)

    async def _commit(self, events: Sequence[Event]) -> None:
        if events:
            await self._committer.commit(events)
            self._passes.wake()

    # -- commands -----------------------------------------------------------------------------------------------------

    async def submit(self, specs: Sequence[JobSpec], *, key: str = "", batch: str = "") -> list[JobId]:
        if key and (first := self.state.keys.get(key)) is not None:
            return await self._submitted_before(first, specs)
        nodes = list(self.state.nodes.values())
        for spec in specs:
            check_feasible(spec, nodes)
            self._check_dependencies(spec)
        events = commands.submit(self.state, specs, key=key, batch=batch, now_s=self._clock.now_s())
        await self._commit(events)
        return [event.job for event in events if isinstance(event, ev.JobSubmitted)]

    async def _submitted_before(self, first: JobId, specs: Sequence[JobSpec]) -> list[JobId]:
        jobs = list(range(first, first + len(specs)))
        known = [self.state.jobs.get(job) for job in jobs]
        if any(record is None or record.spec != spec for record, spec in zip(known, specs, strict=True)):
            raise Conflict("this Idempotency-Key was used for another submission; use a new key for a new job")
        await self._committer.wait_durable(self.state.seq)
        return jobs

    def _check_dependencies(self, spec: JobSpec) -> None:
        for job in spec.dependencies:
            if not was_given(self.state, job):
                raise NotFound(f"it is to wait for job {job}, which does not exist; `swell ls --all` lists jobs")

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
        """Delete: one that has not ended is stopped now; an ended one leaves the record, and what it left on nodes is
        deleted in the background."""
        await self.job(job)  # one that ended long ago is only in the store
        now_s, dirs = self._clock.now_s(), self._settings.job_dirs
        await self._do(commands.remove(self.state, job, by=by, now_s=now_s, dirs=dirs))

    async def _do(self, events: Sequence[Event]) -> None:
        await self._commit(events)
        self._passes.carry_out(events)

    async def add_node(self, node: Node) -> None:
        await self._do(commands.add_node(node, now_s=self._clock.now_s()))

    async def declare_slots(self, gpus: int | None) -> None:
        """So many slots on the daemon's own machine, or (None) the GPUs that it finds."""
        if self._declare is None:
            raise Conflict("this daemon has no machine of its own; add machines with `swell node add`")
        seen = NodeSeen(node=await self._declare(gpus), at_s=self._clock.now_s())
        await self._do(events_seen(self.state, seen, signalled=False))

    async def set_node_condition(self, name: str, condition: NodeCondition, *, why: str = "", by: str = "") -> None:
        now_s = self._clock.now_s()
        await self._do(commands.set_node_condition(self.state, name, condition, why=why, by=by, now_s=now_s))

    async def lose_node(self, name: str, *, by: str = "") -> None:
        """A person says that a machine is off: its runs end now, and continue elsewhere where they can."""
        events = commands.lose_node(self.state, name, by=by, now_s=self._clock.now_s())
        await self._commit(events)
        self._ended_with_their_machine(events)

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

    async def runs(self, job: JobId) -> Sequence[Run]:
        """The last one as the state has it: what was just decided may not be in the tables yet."""
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

    async def runs_between(self, from_s: float, to_s: float, limit: int) -> Sequence[PastRun]:
        return await asyncio.to_thread(self._record.runs_between, from_s, to_s, limit)

    def reasons(self, job: JobId) -> tuple[Reason, ...]:
        return self._passes.reasons(job)

    async def explain(self, job: JobId) -> Explanation:
        """Every reason with numbers, who is ahead, when it will start, and the cheapest change that would start it.
        At once but for the last, which is waited for briefly and said to be missing when it is."""
        record = await self.job(job)
        now = None if record.holding or record.ended else self._fresh_moment()
        advice, missing = await self._forecasts.advice(job, now) if now is not None else ("", "")
        found = explain(self.state, record, self.reasons(job), self._clock.now_s())
        return replace(
            found,
            sentences=tuple(dict.fromkeys((*found.sentences, *self._about_size(record)))),
            advice=advice,
            missing=missing,
            starts=self._forecast_sentence(record),
            trouble=self._passes.decider.trouble,
        )

    def _about_size(self, record: JobRecord) -> list[str]:
        """Why a run has as many GPUs as it has."""
        if not record.holding:
            return []
        per_node = gpus_per_node(self.state.nodes.values())
        return of_size(
            self.state,
            record,
            lambda other: self.book.speed(other, per_node),
            self.book.remaining(record),
            DEFAULT_RESTART_COST_S,
        )

    def _forecast_sentence(self, record: JobRecord) -> str:
        said = forecast_sentence(record, self.eta(record.id), self._forecasts.until_s, self._clock.now_s())
        if not said:
            return ""
        active = map(self.state.jobs.__getitem__, self.state.active)
        matter = (job for job in active if job.state is not JobState.QUEUED or job is record)
        guessed = not all(self.book.remaining(job).known for job in matter)
        return f"{said} (a guess: not every job has said, or shown, how long it takes)" if guessed else said

    def eta(self, job: JobId) -> Interval | None:
        """When it will start and end, by the latest forecast."""
        return self._forecasts.intervals.get(job)

    def series(self, job: JobId) -> Series:
        """What its library measured lately, since the daemon started."""
        return self._series.of(job)

    async def what_if(self, change: Change) -> Sequence[Effect]:
        """Start and end of every job before and after a change."""
        now = self._fresh_moment()
        if now is None:
            raise Conflict("the daemon has not decided anything yet; ask again in a moment")
        return await self._forecasts.what_if(change, now, self.book)

    def _fresh_moment(self) -> Moment | None:
        return self._forecasts.fresh(self.state.seq, self._moment)

    def _moment(self) -> Moment | None:
        if not self._passes.decider.chosen:
            return None
        state = copy_of(self.state)
        known = self._passes.answers()
        per_node = gpus_per_node(state.nodes.values())
        for job in state.active:
            if job not in known:  # since the last pass
                known[job] = self.book.speed(state.jobs[job], per_node), self.book.remaining(state.jobs[job])
        alone = frozenset(j for j in state.active if state.jobs[j].spec.gpus.share and self.book.alone(j))
        options, now_s = self._passes.options, self._clock.now_s()
        return Moment(state=state, answers=known, alone=alone, options=options, now_s=now_s)

    def watch(self, events: Callable[[Sequence[Event]], None], passes: Callable[[PassTimes], None]) -> None:
        """Be told of events once they are on disk, and of how long passes took. Must be quick and not raise."""
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

    def now_s(self) -> float:
        """By the daemon's clock."""
        return self._clock.now_s()

    def health(self) -> dict[str, object]:
        by_state: dict[str, int] = {state: self.state.counts.get(state, 0) for state in sorted(ENDED)}
        for job in self.state.active:
            state = self.state.jobs[job].state
            by_state[state] = by_state.get(state, 0) + 1
        return {
            "ready": self._committer.failure is None and not any(self.tasks.down(name) for name in DECIDES),
            "degraded": self._degraded(),
            "tasks": [
                {"name": death.task, "down": death.down, "deaths": death.deaths, "why": death.why}
                for death in self.tasks.deaths.values()
            ],
            "seq": self._committer.durable_seq,
            "now_s": self.now_s(),
            "jobs": by_state,
            "lost_s": self.state.lost_s,
            "passes": self._passes.count,
            "deciding": self._passes.decider.trouble,
            "policy": self.state.policy,
            "placer": self.state.placer,
            "forecast": self._forecasts.accuracy.summary(),
        }

    def _degraded(self) -> str:
        """What does not work now, in a sentence; empty if all does."""
        failure = self._committer.failure
        if failure is not None:
            return f"nothing can be written or decided; running jobs go on: {failure}"
        down = [death for death in self.tasks.deaths.values() if death.down]
        said = (f"the task {death.task} died and is started again soon ({death.why})" for death in down)
        return "; ".join(said)

    def leftovers(self) -> dict[str, object]:
        """Files of jobs that are not in the record: what could not be deleted, and what is of another database."""
        unknown = self._cleanup.unknown
        return {
            "undeleted": [
                {"job": found.job, "why": found.why, "tries": found.tries, "given_up": found.given_up}
                for found in self._cleanup.undeleted.values()
            ],
            "unknown": {
                "jobs": len(unknown),
                "ids": [ids for ids in self.state.skipped if any(ids[0] <= job <= ids[1] for job in unknown)],
            },
        }

    # -- training code ------------------------------------------------------------------------------------------------

    async def report(self, run: RunId, report: RunReport) -> StopView:
        """What one rank of a run has to say. Durable when it returns, so that the library may forget it."""
        now_s = self._clock.now_s()
        record = self.state.jobs.get(run.job)
        events: list[Event] = []
        # A report whose answer got lost is sent again: what is known is not learned twice. How fast epochs were that
        # are only known from the run's own record is still news.
        done = self._reported.get(run, record.epochs_done) if record is not None else 0
        if report.began is not None and record and record.run and record.run.id == run and record.run.began_s is None:
            began = report.began
            place = {"epoch": began.epoch, "epochs": began.epochs}
            events.append(ev.TrainingBegan(run=run, at_s=now_s, unit=began.unit, **place))
            done = began.epoch  # also where that sets the job back
        epochs = [epoch.event(run, now_s) for epoch in report.epochs if epoch.epoch > done or not epoch.count]
        if run in self._reported:
            self._reported[run] = max([done, *(epoch.epoch for epoch in epochs)])
        if record is not None:
            await self._commit([*events, *epochs])
            self._series.add(run.job, report.series)
        return await self._stops.heard(
            run,
            report.rank,
            report.world_size,
            report.position,
            report.ack,
            steps=report.steps,
            terminating=report.terminating,
        )

    async def await_stop(
        self,
        run: RunId,
        rank: int,
        position: Position,
        ack: Position | None,
        wait_s: float,
        *,
        world_size: int = 0,
        steps: bool = False,
        terminating: bool = False,
    ) -> StopView:
        return await self._stops.wait(
            run, rank, position, ack, wait_s, world_size=world_size, steps=steps, terminating=terminating
        )
