"""Stops running trainings: holds the agreement of each run (`core.agreement`), writes its result to disk, and answers
the ranks that wait for it. The engine passes the requests of ranks on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from swell.core import events as ev
from swell.core.agreement import Agreement, Position
from swell.core.events import VOLUNTARY, Event
from swell.core.ids import RunId
from swell.core.state import Run
from swell.daemon.committer import Committer
from swell.daemon.reports import RankStatus, StopView
from swell.plan.snapshotter import DEFAULT_RESTART_COST_S
from swell.ports import Clock

MAX_WAIT_S = 30.0
"""Maximum duration of a long poll."""


class Stops:
    def __init__(self, committer: Committer, clock: Clock) -> None:
        self._committer = committer
        self._clock = clock
        self._agreements: dict[RunId, Agreement] = {}
        self._news: dict[RunId, asyncio.Event] = {}
        self._writing: dict[RunId, asyncio.Lock] = {}

    async def heard(self, run: RunId, status: RankStatus) -> StopView:
        """A rank has reported its position. The answer holds for every rank of the run."""
        current = self._run(run)
        if current is None:
            return StopView()
        before = self._agreement(run, current)
        record = self._committer.state.jobs[run.job]
        epochs = record.epochs_total if record.unit == "epoch" else 0  # else positions count steps, not epochs
        after = before.hear(
            rank=status.rank,
            position=status.position,
            world_size=status.world_size,
            ack=status.ack,
            steps=status.steps,
            epochs=epochs,
        )
        if status.terminating:  # SIGTERM came from elsewhere: the ranks stop together, as if the daemon had asked them
            after = after.ask(terminating=True)
        self._keep(run, before, after)
        await self._make_durable(run)
        return self._view(run)

    async def wait(self, run: RunId, status: RankStatus, wait_s: float) -> StopView:
        """Answer as soon as there is news for this rank, at the latest after `wait_s`."""
        known = self._agreements.get(run)
        size = status.world_size or (known.world_size if known is not None else 0)
        if size:
            await self.heard(run, replace(status, world_size=size))
        deadline_s = self._clock.monotonic_s() + min(wait_s, MAX_WAIT_S)
        while not self._has_news(run, status.ack):
            left_s = deadline_s - self._clock.monotonic_s()
            if left_s <= 0 or self._run(run) is None:
                break
            await self._next_news(run, left_s)
        return self._view(run)

    def wake(self, events: Sequence[Event]) -> None:
        """Answers the waiting ranks when a stop was requested or withdrawn."""
        for event in events:
            if isinstance(event, ev.RunStopRequested | ev.RunStopWithdrawn):
                current = self._run(event.run)
                if current is not None:
                    before = self._agreements.get(event.run, Agreement())
                    self._keep(event.run, before, self._agreement(event.run, current))

    def ended(self, run: RunId) -> None:
        self._agreements.pop(run, None)
        self._writing.pop(run, None)
        if (news := self._news.pop(run, None)) is not None:
            news.set()

    def _run(self, run: RunId) -> Run | None:
        record = self._committer.state.jobs.get(run.job)
        current = record.run if record is not None and record.holding else None
        return current if current is not None and current.id == run else None

    def _agreement(self, run: RunId, current: Run) -> Agreement:
        agreement = self._agreements.get(run, Agreement())
        at = current.agreed if current.stop is None else current.stop.agreed
        if at is not None and agreement.decided is None:  # decided before a restart, and still valid
            return Agreement(world_size=agreement.world_size, asked=True, proposal=at, decided=at, confirmed=True)
        if current.stop is None:
            return agreement.withdraw() if at is None else agreement
        return agreement.ask(spare=self._spare(run, current))

    def _spare(self, run: RunId, current: Run) -> int:
        """How many epochs before the end a voluntary stop no longer interrupts: 1 if an epoch takes less time than a
        restart, else 0."""
        if current.stop is None or current.stop.why not in VOLUNTARY:
            return 0
        cost_s = self._committer.state.jobs[run.job].restart_cost_s
        return int(0.0 < current.boundary_every_s < (DEFAULT_RESTART_COST_S if cost_s is None else cost_s))

    def _keep(self, run: RunId, before: Agreement, after: Agreement) -> None:
        self._agreements[run] = after
        if (before.proposal, before.confirmed) != (after.proposal, after.confirmed):
            self._tell(run)

    def _tell(self, run: RunId) -> None:
        if (news := self._news.pop(run, None)) is not None:
            news.set()

    async def _make_durable(self, run: RunId) -> None:
        """Writes the agreed position to disk before any rank receives it."""
        async with self._writing.setdefault(run, asyncio.Lock()):
            agreement = self._agreements.get(run)
            if agreement is None or agreement.decided is None or agreement.confirmed:
                return
            epoch, step = agreement.decided
            await self._committer.commit([ev.StopAgreed(run=run, epoch=epoch, step=step, at_s=self._clock.now_s())])
            latest, current = self._agreements.get(run, agreement), self._run(run)
            if current is not None:
                latest = self._agreement(run, current)
            if latest.decided is not None:  # else it was withdrawn before any rank received the position
                self._keep(run, latest, latest.confirm())

    def _has_news(self, run: RunId, ack: Position | None) -> bool:
        agreement = self._agreements.get(run)
        return agreement is not None and agreement.news_for(ack)

    async def _next_news(self, run: RunId, timeout_s: float) -> None:
        news = self._news.setdefault(run, asyncio.Event())
        try:
            async with asyncio.timeout(timeout_s):
                await news.wait()
        except TimeoutError:
            return

    def _view(self, run: RunId) -> StopView:
        agreement = self._agreements.get(run)
        view = agreement.view() if agreement is not None else None
        if view is None:
            return StopView()
        return StopView(stop=view, poll_s=0.2)
