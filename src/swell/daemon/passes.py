"""Runs passes: soon after an event, when a deadline is due, and periodically. The engine starts it as a task.

Events close together share one pass. A pass handles due deadlines, takes a snapshot, asks for a plan (`deciding`),
writes its events to disk, and only then carries out the effects. Deadlines are also handled during a long decision.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache

from swell.core import events as ev
from swell.core.decision import Explain, Plan, Reason, no_reasons
from swell.core.errors import InvalidTransition, StoreError
from swell.core.events import Event
from swell.core.ids import JobId
from swell.core.snapshot import Options, Speed
from swell.daemon.committer import Committer
from swell.daemon.deciding import Decider, NoDecision, Superseded
from swell.daemon.effects import Effects
from swell.daemon.timing import PassTimes
from swell.plan.deadlines import Patience, due
from swell.plan.one_pass import Outcome, outcome, question
from swell.plan.snapshotter import Snapshotter
from swell.ports import Clock, Remaining

log = logging.getLogger(__name__)

TROUBLE_S = 1.0
"""Delay after a failed pass."""
MEANWHILE_S = 1.0
"""Interval of the checks for due deadlines while a decision is under way."""
COMPANY_S = 2.0
"""Maximum time that an event waits for others to share its pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    interval_s: float = 10.0
    coalesce_s: float = 0.05
    patience: Patience = field(default_factory=Patience)
    decision_s: float = 30.0  # a policy that has not decided by then is late


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
        self.decider = Decider(timing.decision_s)
        self.count = 0
        self.watchers: list[Callable[[PassTimes], None]] = []
        self._explain: Explain = no_reasons  # of the last plan; computed at the first request
        self._held_back: Mapping[JobId, Reason] = {}
        self._in_trouble = False  # the last pass yielded no decision

    def reasons(self, job: JobId) -> tuple[Reason, ...]:
        """Why the last pass decided so for the job; empty if it did not see the job."""
        held_back = self._held_back.get(job)
        return self._explain().get(job, ()) if held_back is None else (held_back,)

    def answers(self) -> dict[JobId, tuple[Speed, Remaining]]:
        """What the speed book answered for each job at the last pass."""
        return self._snapshotter.answers()

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
                wait_s = TROUBLE_S  # the committer has logged why
            except Superseded:
                wait_s = 0.0
            except NoDecision as error:
                self._say_once(error)
                wait_s = TROUBLE_S
            except InvalidTransition:
                log.exception("a pass was inconsistent and was dropped")
                wait_s = TROUBLE_S
            except Exception:
                log.exception("a pass failed; running jobs go on, the next pass tries again")
                wait_s = TROUBLE_S

    def _say_once(self, error: NoDecision) -> None:
        """Logs a problem when it begins, not again with every failed pass."""
        if not self._in_trouble:
            log.error("%s", error, exc_info=error.__cause__)
        self._in_trouble = True

    async def _wait(self, wait_s: float) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._wake.wait()
        except TimeoutError:
            return
        # Slow passes coalesce events for longer, so that a burst never causes one pass per event.
        await asyncio.sleep(max(self._timing.coalesce_s, min(2.0 * self._last_pass_s, COMPANY_S)))

    async def once(self) -> float:
        """Runs one pass. Returns the seconds until the next deadline that needs one."""
        self._committer.check()
        self._wake.clear()
        began_s = self._clock.monotonic_s()
        now_s = self._clock.now_s()
        next_s = await self._do_what_is_due(now_s)
        done = await self._decide(now_s)
        if done is not None:
            await self._committer.commit(done.events)
            self.carry_out(done.events)
            next_s = min((t for t in (next_s, done.wake_s) if t is not None), default=None)
        self.count += 1
        self._last_pass_s = self._clock.monotonic_s() - began_s
        self._measure()
        wait_s = self._timing.interval_s
        return wait_s if next_s is None else max(0.01, min(wait_s, next_s - self._clock.now_s()))

    def _measure(self) -> None:
        policy_s, placement_s = self.decider.parts_s
        times = PassTimes(
            policy=self._committer.state.policy,
            whole_s=self._last_pass_s,
            policy_s=policy_s,
            placement_s=placement_s,
        )
        for watcher in self.watchers:
            watcher(times)

    async def _do_what_is_due(self, now_s: float) -> float | None:
        found = due(self._committer.state, now_s, self._timing.patience)
        if found.events:
            await self._committer.commit(found.events)
            found = due(self._committer.state, now_s, self._timing.patience)
        for run, force in found.signals:
            self._effects.push(run, force)
        return found.next_s

    async def _decide(self, now_s: float) -> Outcome | None:
        if not self.decider.chosen:
            return None
        await self._committer.fit_speeds(now_s)
        state = self._committer.state
        asked = question(self._snapshotter, state, now_s, self.options)
        rng = random.Random(asked.seed)  # noqa: S311 - a seed that replays, not a secret
        deciding = self.decider.plan(asked.snapshot, asked.memory, rng)
        plan = await (deciding if self.decider.at_once(asked.snapshot) else self._meanwhile(deciding))
        if self._in_trouble:
            log.info("policy %s decides again", state.policy)
        self._in_trouble = False
        self._explain, self._held_back = cache(plan.explain), asked.held_back
        return outcome(asked, plan, self._committer.state, self._clock.now_s())

    async def _meanwhile(self, asked: Coroutine[None, None, Plan]) -> Plan:
        """Handle time limits and signals while a long decision is under way."""
        deciding = asyncio.ensure_future(asked)
        try:
            while not (await asyncio.wait({deciding}, timeout=MEANWHILE_S))[0]:
                with suppress(StoreError):  # the committer has logged why; the next pass tries again
                    await self._do_what_is_due(self._clock.now_s())
        finally:
            deciding.cancel()
        return deciding.result()

    def carry_out(self, events: Sequence[Event]) -> None:
        """Carry out the effects of events that are on disk."""
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
