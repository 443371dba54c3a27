"""Records what machines and trainings report as events: each fact once, however often it is reported.

The engine hands over what executors observe (`observed`) and what the in-job library sends (`report`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from swell.core import events as ev
from swell.core.errors import StoreError
from swell.core.events import Event, ExitReason
from swell.core.idle import IdleRules
from swell.core.ids import RunId
from swell.core.observations import (
    Adopted,
    FilesFound,
    GpusMeasured,
    NodeGone,
    NodeHeard,
    Observation,
    RunGone,
    RunProgress,
)
from swell.core.state import JobState, State
from swell.daemon.checkpoint_watch import CheckpointWatch
from swell.daemon.cleanup import Cleanup
from swell.daemon.committer import Committer
from swell.daemon.contacts import Contacts
from swell.daemon.effects import Effects
from swell.daemon.idle_gpus import IdleGpus
from swell.daemon.logwatch import LogWatch
from swell.daemon.reports import RunReport
from swell.daemon.series import RecentSeries
from swell.daemon.stops import Stops
from swell.daemon.watch import events_seen
from swell.plan import commands
from swell.ports import Clock

Commit = Callable[[Sequence[Event]], Awaitable[None]]


class Observing:
    """`commit` makes events durable; `do` also carries out what follows from them."""

    def __init__(
        self,
        committer: Committer,
        effects: Effects,
        stops: Stops,
        cleanup: Cleanup,
        logs: LogWatch,
        checkpoints: CheckpointWatch,
        clock: Clock,
        *,
        commit: Commit,
        do: Commit,
        idle: IdleRules,
    ) -> None:
        self._committer = committer
        self._effects = effects
        self._stops = stops
        self._cleanup = cleanup
        self._logs, self._checkpoints = logs, checkpoints
        self._clock = clock
        self._commit = commit
        self._do = do
        self.contacts = Contacts(lambda: self._state, self._commit_contact, effects.kill_old, effects.reached, clock)
        self.series = RecentSeries()
        self.idle_gpus = IdleGpus(lambda: self._state, do, self.series, clock, idle)
        self.adopted = asyncio.Event()  # executors have reported what ran at the start of the daemon
        self._reported: dict[RunId, int] = {}  # epochs that a run's library reported, if the run's own record was ahead

    @property
    def _state(self) -> State:
        return self._committer.state

    async def observed(self, seen: Observation) -> None:
        """Records what an executor reported. During an outage of the store it waits until it can be written."""
        if isinstance(seen, GpusMeasured):
            self.idle_gpus.measured(seen)
            return
        if isinstance(seen, FilesFound):
            self._cleanup.found(seen.jobs)
        await self._committer.healthy()
        if isinstance(seen, NodeHeard):
            await self.contacts.heard(seen)
            return
        if isinstance(seen, RunGone):
            await self._read_to_the_end(seen)
        while True:
            await self._committer.healthy()  # before that, the state may hold events that are not on disk
            try:
                signalled = isinstance(seen, RunGone) and self._effects.signalled(seen.run)
                events = events_seen(self._state, seen, signalled=signalled)
                if isinstance(seen, RunProgress) and events:
                    began = any(isinstance(event, ev.TrainingBegan) for event in events)
                    known = seen.resumed if began else self._state.jobs[seen.run.job].epochs_done
                    self._reported.setdefault(seen.run, known)
                await self._commit(events)
            except StoreError:
                continue
            break
        if isinstance(seen, NodeGone):
            self.ended_with_their_machine(events)
        if isinstance(seen, Adopted):
            self.adopted.set()
        if isinstance(seen, RunGone):
            if seen.reason is ExitReason.FINISHED and not events:  # the run had been given up, but finished its job
                with suppress(StoreError):  # without this event its work is repeated
                    await self._do(commands.result_stands(self._state, seen.run, now_s=self._clock.now_s()))
            self._effects.ended(seen.run)
            self._stops.ended(seen.run)
            self._reported.pop(seen.run, None)

    async def _read_to_the_end(self, seen: RunGone) -> None:
        """Record the last progress of a script without the library before its end is recorded."""
        record = self._state.jobs.get(seen.run.job)
        stopping = record is not None and record.state is JobState.STOPPING
        if stopping or seen.reason in (ExitReason.FINISHED, ExitReason.STOPPED):
            await self._logs.ended(seen.run, well=seen.reason is ExitReason.FINISHED)
        with suppress(StoreError):  # without this event an earlier checkpoint counts as its last
            await self._checkpoints.ended(seen.run, whole=seen.exit_code == 0)

    async def _commit_contact(self, events: Sequence[Event]) -> None:
        """Commits changes of contact, and ends runs that were lost with their machine. If the store refuses the write,
        the next look repeats it."""
        if self._committer.failure is not None:
            return
        with suppress(StoreError):
            await self._commit(events)
            self.ended_with_their_machine(events)

    def ended_with_their_machine(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, ev.RunEnded):
                self._effects.ended(event.run)
                if event.reason is ExitReason.NODE_LOST:
                    self._effects.kill_old(event.run)  # its workers on other machines
                self._stops.ended(event.run)
                self._reported.pop(event.run, None)

    async def report(self, run: RunId, report: RunReport) -> None:
        """Record what one rank of a run reports; durable on return."""
        now_s = self._clock.now_s()
        record = self._state.jobs.get(run.job)
        events: list[Event] = []
        # A report without an answer is sent again, so known epochs are dropped. Epochs known only from the run's own
        # record are kept: the record has no speeds, the report has.
        done = self._reported.get(run, record.epochs_done) if record is not None else 0
        if report.began is not None and record and record.run and record.run.id == run and record.run.began_s is None:
            began = report.began
            place = ev.TrainingBegan(run=run, at_s=now_s, unit=began.unit, epoch=began.epoch, epochs=began.epochs)
            events.append(place)
            done = began.epoch  # even if that is less than the job had done
        epochs = [epoch.event(run, now_s) for epoch in report.epochs if epoch.epoch > done or not epoch.count]
        if run in self._reported:
            self._reported[run] = max([done, *(epoch.epoch for epoch in epochs)])
        if record is not None:
            await self._commit([*events, *epochs])
            self.series.add(run.job, report.series)
