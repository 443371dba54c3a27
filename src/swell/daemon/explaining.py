"""Explains a job: why it waits or has its size, when it will start and end, what a change would do.

Reads the state and the forecasts and changes nothing. The engine's queries call it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from swell.core.errors import Conflict
from swell.core.ids import JobId
from swell.core.resources import gpus_per_node
from swell.core.state import JobRecord, JobState, State
from swell.daemon.committer import Committer
from swell.daemon.forecasts import Forecasts, forecast_sentence
from swell.daemon.idle_gpus import IdleGpus
from swell.daemon.lookahead import Simulate, Simulation
from swell.daemon.moments import Moment
from swell.daemon.passes import Passes
from swell.plan.explain import Explanation, explain
from swell.plan.sizes import of_size
from swell.plan.snapshotter import restart_cost_s
from swell.ports import Clock
from swell.sim.forecast import Change, Effect, Interval, copy_of
from swell.speed.describe import DescribedBook


class Explaining:
    def __init__(
        self,
        committer: Committer,
        passes: Passes,
        forecasts: Forecasts,
        book: DescribedBook,
        clock: Clock,
        idle_gpus: IdleGpus,
    ) -> None:
        self._committer = committer
        self._passes = passes
        self._forecasts = forecasts
        self._book = book
        self._clock = clock
        self._idle_gpus = idle_gpus

    @property
    def _state(self) -> State:
        return self._committer.state

    async def explain(self, record: JobRecord) -> Explanation:
        """All reasons with numbers, the jobs ahead, the forecast, and the cheapest change that would start it. Only the
        last may take time: after a short wait the answer says that it is missing."""
        now = None if record.holding or record.ended else self._fresh_moment()
        advice, missing = await self._forecasts.advice(record.id, now) if now is not None else ("", "")
        found = explain(self._state, record, self._passes.reasons(record.id), self._clock.now_s())
        return replace(
            found,
            sentences=tuple(dict.fromkeys((*self._about_use(record), *found.sentences, *self._about_size(record)))),
            advice=advice,
            missing=missing,
            starts=self._forecast_sentence(record),
            trouble=self._passes.decider.trouble,
        )

    def _about_use(self, record: JobRecord) -> list[str]:
        idle = self._idle_gpus.jobs().get(record.id)
        return [idle.words(self._clock.now_s())] if idle else []

    def _about_size(self, record: JobRecord) -> list[str]:
        """Why a run has as many GPUs as it has."""
        if not record.holding:
            return []
        per_node = gpus_per_node(self._state.nodes.values())
        remaining = self._book.remaining(record)
        cost_s = restart_cost_s(record, remaining)
        return of_size(self._state, record, lambda other: self._book.speed(other, per_node), remaining, cost_s)

    def _forecast_sentence(self, record: JobRecord) -> str:
        active = map(self._state.jobs.__getitem__, self._state.active)
        matter = (job for job in active if job.state is not JobState.QUEUED or job is record)
        guessed = not all(self._book.remaining(job).known for job in matter)
        until_s, now_s = self._forecasts.until_s, self._clock.now_s()
        return forecast_sentence(record, self.eta(record.id), until_s, now_s, guessed=guessed)

    def eta(self, job: JobId) -> Interval | None:
        """When it will start and end, by the latest forecast."""
        return self._forecasts.intervals.get(job)

    async def what_if(self, change: Change) -> Sequence[Effect]:
        """Start and end of every job before and after a change."""
        now = self._fresh_moment()
        if now is None:
            raise Conflict("the daemon has not decided anything yet; ask again in a moment")
        return await self._forecasts.what_if(change, now, self._book)

    async def simulate(self, task: Simulate) -> Simulation:
        """Several policies on the same jobs. Nothing is changed."""
        now = self._fresh_moment()
        if now is None:
            raise Conflict("the daemon has not decided anything yet; ask again in a moment")
        return await self._forecasts.simulate(task, now)

    def _fresh_moment(self) -> Moment | None:
        return self._forecasts.fresh(self._state.seq, self.moment)

    def moment(self) -> Moment | None:
        if not self._passes.decider.chosen:
            return None
        state = copy_of(self._state)
        known = self._passes.answers()
        per_node = gpus_per_node(state.nodes.values())
        for job in state.active:
            if job not in known:  # since the last pass
                known[job] = self._book.speed(state.jobs[job], per_node), self._book.remaining(state.jobs[job])
        alone = frozenset(j for j in state.active if state.jobs[j].spec.gpus.share and self._book.alone(j))
        options, now_s = self._passes.options, self._clock.now_s()
        return Moment(state=state, answers=known, alone=alone, options=options, now_s=now_s)
