"""GPU utilisation as machines measure it, and the remedies for jobs that hold GPUs idle (`plan.idle`).

Fed by `daemon.observing`, read by the API, the hooks and `explain`. In memory only: a measurement is no event and wakes
no pass; after a restart of the daemon every idle time counts from zero.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from swell.core.errors import StoreError, SwellError
from swell.core.events import Event
from swell.core.idle import GpuUse, IdleRules
from swell.core.ids import JobId
from swell.core.observations import GpusMeasured
from swell.core.resources import GpuKey
from swell.core.state import State
from swell.daemon.series import GPU_MEMORY, GPU_PERCENT, RecentSeries
from swell.plan import commands
from swell.plan.idle import Idle, Remedy, idle_jobs, remedies, smaller
from swell.ports import Clock

log = logging.getLogger(__name__)

EVERY_S = 10.0
"""Interval of the displayed means, and between two checks for idle GPUs."""
STALE_S = 60.0
"""A GPU without a measurement for this long is neither shown nor counted as idle: its machine may be away."""
BY = "swell"
"""The name under which the record shows that the daemon shrank or suspended a job."""


@dataclass(slots=True)
class _Gpu:
    at_s: float  # of the last measurement
    quiet_since_s: float | None  # None: it was busy then, or the driver does not report it
    percents: list[float]  # since they were shown last
    memory_mib: int


class IdleGpus:
    """`do` makes events durable and carries out what follows from them."""

    def __init__(
        self,
        state: Callable[[], State],
        do: Callable[[Sequence[Event]], Awaitable[None]],
        series: RecentSeries,
        clock: Clock,
        rules: IdleRules,
    ) -> None:
        self._state = state
        self._do = do
        self._series = series
        self._clock = clock
        self._rules = rules
        self._gpus: dict[GpuKey, _Gpu] = {}
        self.use: Mapping[GpuKey, GpuUse] = {}
        """The displayed use. Replaced by a new object when it changes."""

    def measured(self, seen: GpusMeasured) -> None:
        for index, use in seen.use.items():
            known = self._gpus.setdefault((seen.node, index), _Gpu(seen.at_s, None, [], 0))
            if use.percent is None or use.percent >= self._rules.below_percent:
                known.quiet_since_s = None
            elif known.quiet_since_s is None or seen.at_s - known.at_s > STALE_S:
                known.quiet_since_s = seen.at_s
            known.at_s, known.memory_mib = seen.at_s, use.memory_mib
            known.percents += [] if use.percent is None else [use.percent]

    def jobs(self) -> dict[JobId, Idle]:
        """Jobs with GPUs that were idle for longer than `warn_after_s`."""
        return idle_jobs(self._state(), self._quiet(), self._rules.warn_after_s, self._clock.now_s())

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self.look()

    async def look(self) -> None:
        """Update the displayed means since the last look, and apply the remedies that are due."""
        now_s = self._clock.now_s()
        self._gpus = {key: gpu for key, gpu in self._gpus.items() if now_s - gpu.at_s <= STALE_S}
        use = {key: self._shown(key, gpu) for key, gpu in self._gpus.items()}
        self.use = self.use if use == self.use else use
        self._chart(now_s)
        for job, remedy in remedies(self._state(), self._quiet(), self._rules, now_s).items():
            await self._remedy(job, remedy, now_s)

    def _quiet(self) -> dict[GpuKey, float]:
        fresh_s = self._clock.now_s() - STALE_S
        known = ((key, gpu.quiet_since_s) for key, gpu in self._gpus.items() if gpu.at_s >= fresh_s)
        return {key: since_s for key, since_s in known if since_s is not None}

    def _shown(self, key: GpuKey, gpu: _Gpu) -> GpuUse:
        percents, gpu.percents = gpu.percents, []
        before = self.use[key].percent if key in self.use else None
        return GpuUse(percent=round(sum(percents) / len(percents)) if percents else before, memory_mib=gpu.memory_mib)

    def _chart(self, now_s: float) -> None:
        """Mean utilisation and largest memory of the GPUs of each running job, beside what its library reports."""
        state = self._state()
        for job in state.active:
            allocation = state.jobs[job].allocation
            held = allocation.gpu_keys if allocation else []
            found = [self.use[gpu] for gpu in held if gpu in self.use]
            percents = [use.percent for use in found if use.percent is not None]
            if percents:
                mean, most_mib = sum(percents) / len(percents), max(use.memory_mib for use in found)
                points = {GPU_PERCENT: ((now_s, mean),), GPU_MEMORY: ((now_s, float(most_mib)),)}
                self._series.add(job, points)

    async def _remedy(self, job: JobId, remedy: Remedy, now_s: float) -> None:
        state = self._state()
        idle = idle_jobs(state, self._quiet(), self._after_s(remedy), now_s)[job]
        words = idle.words(now_s)
        try:
            if remedy is Remedy.SUSPEND:
                await self._do(commands.pause(state, job, by=BY, now_s=now_s, reason=words))
            else:
                record = state.jobs[job]
                most = smaller(record, idle)
                gpus = replace(record.spec.gpus, max=most, start=min(record.spec.gpus.start, most))
                gpus = replace(gpus, allowed=tuple(size for size in gpus.allowed if size <= most))
                await self._do(commands.update(state, job, commands.Update(gpus=gpus), by=BY, now_s=now_s))
        except StoreError:
            return  # it is due at the next look too
        except SwellError as error:
            log.warning("job %d: %s, but it cannot %s: %s", job, words, remedy, error)
            return
        log.warning("job %d: %s; the daemon makes it %s (idle_gpus in config.yaml)", job, words, remedy)

    def _after_s(self, remedy: Remedy) -> float:
        return self._rules.suspend_after_s if remedy is Remedy.SUSPEND else self._rules.shrink_after_s
