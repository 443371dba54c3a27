"""What will happen, as the daemon tells it: the live state run forward in the background, advice, and what-if.

All of it works on a copy (frozen records, frozen answers of the speed book) in a thread, so that deciding and answering
go on meanwhile. What a forecast took says how soon the next may come: a small part of a core at most. What came of
forecasts says how wide their intervals must be (`sim.forecast_accuracy`); a daemon that starts begins with the prior.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from swell.core.events import Event
from swell.core.ids import JobId
from swell.core.resources import gpus_per_node
from swell.core.snapshot import Options, Speed
from swell.core.state import JobRecord, State
from swell.plan.explain import duration
from swell.ports import Placer, Policy, Remaining, SpeedBook
from swell.sim.cheapest_change import relax
from swell.sim.forecast import Change, Effect, Interval, forecast, what_if
from swell.sim.forecast_accuracy import Accuracy, TrackRecord
from swell.sim.forecast_calibration import Calibration, Kind, Scales

log = logging.getLogger(__name__)

SAMPLES = 4
MAX_JOBS = 1000
"""With more jobs than this nothing is forecast: a thread that computes for seconds would slow the answers."""
LOOKS_AT_JOBS = 800
"""So many jobs over all samples of one forecast; at least one sample is made."""
JOBS_AT_ONCE = 100
"""Of a forecast that is done: so many are told of between two looks at what else there is to do."""
EVERY_S = 3.0
SHARE = 20.0
"""A forecast that took t of CPU time is followed by the next after SHARE × t at the soonest."""


class FrozenBook:
    """What the speed book says at this moment of the jobs that have not ended. Learns nothing."""

    follows_records = False

    def __init__(self, book: SpeedBook, state: State) -> None:
        per_node = gpus_per_node(state.nodes.values())
        self._answers = {
            job: (book.speed(state.jobs[job], per_node), book.remaining(state.jobs[job])) for job in state.active
        }
        self._alone = frozenset(job for job in state.active if book.alone(job))
        self._book, self._per_node = book, per_node

    def learn(self, event: Event) -> None:
        """It is frozen."""

    def speed(self, job: JobRecord, gpus_per_node: Mapping[str, int]) -> Speed:
        known = self._answers.get(job.id)
        return known[0] if known else self._book.speed(job, self._per_node)

    def remaining(self, job: JobRecord) -> Remaining:
        known = self._answers.get(job.id)
        return known[1] if known else self._book.remaining(job)

    def alone(self, job: JobId) -> bool:
        return job in self._alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Everything a look ahead needs, frozen."""

    state: State
    book: FrozenBook
    policy: Policy
    placer: Placer
    options: Options
    now_s: float


class Forecasts:
    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._track = TrackRecord()
        self._live = State()  # where the jobs are that have not ended, as of the last event
        self.intervals: Mapping[JobId, Interval] = {}

    @property
    def accuracy(self) -> Accuracy:
        return self._track.accuracy

    def happened(self, events: Sequence[Event], state: State) -> None:
        """Events have become true: forecasts are old, and some can be judged."""
        self._live = state
        self._changed.set()
        for event in events:
            self._track.happened(event, state)

    async def run(self, moment: Callable[[], Moment | None]) -> None:
        """Forecast again and again, as things change. Until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            cpu_s = 0.0
            try:
                cpu_s = await self._once(moment())
            except Exception:
                log.exception("no forecast could be made; jobs are not affected")
            await asyncio.sleep(max(EVERY_S, SHARE * cpu_s))

    async def _once(self, now: Moment | None) -> float:
        """Returns the CPU time it took."""
        if now is None or not now.state.active:
            return 0.0
        ahead = await asyncio.to_thread(_look_ahead, now, self._track.calibration.copy())
        told: dict[JobId, Interval] = {}
        jobs = list(ahead.raw)
        for start in range(0, len(jobs), JOBS_AT_ONCE):
            some = {job: ahead.raw[job] for job in jobs[start : start + JOBS_AT_ONCE]}
            told.update(self._track.told(some, self._live, now.now_s, ahead.scales))
            await asyncio.sleep(0)  # answers come first
        self.intervals = told
        return ahead.cpu_s

    async def advice(self, job: JobId, now: Moment) -> str:
        """The cheapest change that would let it start, in words; empty if there is none."""
        found = await asyncio.to_thread(relax, now.state, now.book, now.policy, now.placer, now.options, now.now_s, job)
        return found.advice if found is not None else ""

    async def what_if(self, change: Change, now: Moment) -> Sequence[Effect]:
        return await asyncio.to_thread(
            what_if, now.state, now.book, now.policy, now.placer, now.options, now.now_s, change
        )


@dataclass(frozen=True, slots=True)
class _Ahead:
    raw: Mapping[JobId, Interval]  # as the models say
    scales: Mapping[Kind, Scales]  # how honest that was so far
    cpu_s: float


def _look_ahead(now: Moment, past: Calibration) -> _Ahead:
    began_s = time.thread_time()
    samples = max(1, min(SAMPLES, LOOKS_AT_JOBS // len(now.state.active)))
    raw = forecast(now.state, now.book, now.policy, now.placer, now.options, now.now_s, samples)
    scales = past.scales(now.now_s)
    return _Ahead(raw, scales, time.thread_time() - began_s)


def forecast_sentence(record: JobRecord, interval: Interval | None, now_s: float) -> str:
    """When it will start and end, for people; empty where nothing is known."""
    if interval is None or record.ended:
        return ""
    ends = f"ends {_between(interval.end_low_s - now_s, interval.end_high_s - now_s)}"
    if record.holding:
        return ends
    return f"starts {_between(interval.start_low_s - now_s, interval.start_high_s - now_s)}, {ends}"


def _between(low_s: float, high_s: float) -> str:
    low, high = duration(max(0.0, low_s)), duration(max(0.0, high_s))
    return f"in about {high}" if low == high else f"in {low} to {high}"
