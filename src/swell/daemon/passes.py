"""When to decide: soon after something happened, when time alone would change the answer, and now and then anyway.

Events close together are one pass. A pass is: what is due, a snapshotter, the pure cycle (in a thread: the snapshot is
frozen, so answers go on meanwhile), the events of the plan on disk, and only then the effects.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from swell.core import events as ev
from swell.core.decision import Explain, Plan, Reason, no_reasons
from swell.core.errors import InvalidTransition, StoreError
from swell.core.events import Event
from swell.core.ids import JobId
from swell.core.snapshot import Options, Snapshot
from swell.daemon.committer import Committer
from swell.daemon.effects import Effects
from swell.plan.cycle import cycle
from swell.plan.deadlines import Patience, due
from swell.plan.enact import events_of
from swell.plan.snapshotter import Snapshotter
from swell.ports import Clock, Placer, Policy

log = logging.getLogger(__name__)

TROUBLE_S = 1.0
"""After a failed pass, wait so long before the next."""
SMALL = 200
"""Up to so many jobs a decision takes less time than handing it to a thread is worth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    interval_s: float = 10.0
    coalesce_s: float = 0.05
    patience: Patience = field(default_factory=Patience)


class Passes:
    def __init__(
        self,
        committer: Committer,
        snapshotter: Snapshotter,
        effects: Effects,
        clock: Clock,
        options: Options,
        timing: Timing,
    ) -> None:
        self._committer = committer
        self._snapshotter = snapshotter
        self._effects = effects
        self._clock = clock
        self._options = options
        self._timing = timing
        self._wake = asyncio.Event()
        self._last_pass_s = 0.0
        self.policy: Policy | None = None
        self.placer: Placer | None = None
        self.count = 0
        self._explain: Explain = no_reasons  # of the last plan; made when somebody asks, and once
        self._held_back: Mapping[JobId, Reason] = {}

    def reasons(self, job: JobId) -> tuple[Reason, ...]:
        """Of the last pass; none if it did not see the job."""
        held_back = self._held_back.get(job)
        return self._explain().get(job, ()) if held_back is None else (held_back,)

    def wake(self) -> None:
        self._wake.set()

    @property
    def options(self) -> Options:
        return replace(self._options, policy=self._committer.state.policy_options)

    async def run(self) -> None:
        """Until cancelled."""
        wait_s = 0.0
        while True:
            await self._wait(wait_s)
            try:
                wait_s = await self.once()
            except StoreError:
                wait_s = TROUBLE_S  # the committer has said why
            except InvalidTransition:
                log.exception("a pass was inconsistent and was dropped")
                wait_s = TROUBLE_S
            except Exception:
                log.exception("a pass failed; running jobs go on, the next pass tries again")
                wait_s = TROUBLE_S

    async def _wait(self, wait_s: float) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._wake.wait()
        except TimeoutError:
            return
        # A pass that takes long waits longer for company, so that a burst never means a pass for each event.
        await asyncio.sleep(max(self._timing.coalesce_s, 2.0 * self._last_pass_s))

    async def once(self) -> float:
        """One pass. Returns after how many seconds time alone calls for the next."""
        self._committer.check()
        self._wake.clear()
        began_s = self._clock.monotonic_s()
        now_s = self._clock.now_s()
        next_s = await self._do_what_is_due(now_s)
        plan = await self._decide(now_s)
        if plan is not None:
            await self._enact(plan)
            next_s = min((t for t in (next_s, plan.wake_s) if t is not None), default=None)
        self.count += 1
        self._last_pass_s = self._clock.monotonic_s() - began_s
        wait_s = self._timing.interval_s
        return wait_s if next_s is None else max(0.01, min(wait_s, next_s - self._clock.now_s()))

    async def _do_what_is_due(self, now_s: float) -> float | None:
        found = due(self._committer.state, now_s, self._timing.patience)
        if found.events:
            await self._committer.commit(found.events)
            found = due(self._committer.state, now_s, self._timing.patience)
        for run, force in found.signals:
            self._effects.push(run, force)
        return found.next_s

    async def _decide(self, now_s: float) -> Plan | None:
        if self.policy is None or self.placer is None:
            return None
        state = self._committer.state
        snapshot, held_back = self._snapshotter.take(state, now_s, self.options)
        rng = random.Random(state.seq)  # noqa: S311 - a seed that replays, not a secret
        plan = await self._cycle(snapshot, self.policy, self.placer, state.policy_memory, rng)
        self._explain, self._held_back = cache(plan.explain), held_back
        return plan

    async def _cycle(
        self, snapshot: Snapshot, policy: Policy, placer: Placer, memory: Mapping[str, object], rng: random.Random
    ) -> Plan:
        if len(snapshot.jobs) <= SMALL:
            return cycle(snapshot, policy, placer, memory, rng)
        return await asyncio.to_thread(cycle, snapshot, policy, placer, memory, rng)

    async def _enact(self, plan: Plan) -> None:
        events = events_of(plan, self._committer.state, self._clock.now_s())
        await self._committer.commit(events)
        self.carry_out(events)

    def carry_out(self, events: Sequence[Event]) -> None:
        """The effects of events that are on disk."""
        for event in events:
            if isinstance(event, ev.RunPlanned | ev.RunResized):
                record = self._committer.state.jobs.get(event.run.job)
                if record is None or record.run is None or record.run.id != event.run or not record.holding:
                    continue
                if isinstance(event, ev.RunPlanned):
                    self._effects.launch(record)
                else:
                    self._effects.resize(record)
        if any(isinstance(event, ev.RunStopRequested) for event in events):
            self.wake()
