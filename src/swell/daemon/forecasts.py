"""Forecasts of starts and ends, advice and what-if: simulates the live state forward, in the background.

`daemon.helper` computes them from a copy of the state, so that nothing mutable is shared with live decisions and the
API keeps answering. The CPU time of a forecast sets the delay before the next, so that all of them together use a small
part of one core. Past errors set the width of the intervals (`sim.forecast_accuracy`); a restart begins with the prior.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from swell.core.errors import Busy
from swell.core.events import Event
from swell.core.ids import JobId
from swell.core.resources import gpus_per_node
from swell.core.state import JobRecord, State
from swell.daemon.helper import Helper, NoAnswer
from swell.daemon.lookahead import Advice, Advise, Compare, Foresee, Simulate, Simulation
from swell.daemon.moments import Moment, answers_for
from swell.plan.explain import duration
from swell.ports import SpeedBook
from swell.sim.forecast import Change, Effect, Forecast, Interval, says_nothing
from swell.sim.forecast_accuracy import Accuracy, TrackRecord

log = logging.getLogger(__name__)

SAMPLES = 4
LOOKS_AT_JOBS = 800
"""Maximum number of jobs over all samples of one forecast; at least one sample is made."""
JOBS_AT_ONCE = 100
"""Intervals stored at a time before the event loop runs other tasks."""
EVERY_S = 3.0
AGAIN_S = 15.0
"""Maximum age of a forecast, also without events: the longer a job runs, the later its expected end."""
SHARE = 20.0
"""After a forecast that took t of CPU time, the next one begins at the earliest SHARE × t later."""
FORECAST_LIMIT_S = 300.0
ASKED_LIMIT_S = 25.0
"""Time limit of advice and what-if, for which a person waits."""
SIMULATE_LIMIT_S = 60.0
MOST_WAITING = 16
TURN_S = 10.0
"""Maximum time that a what-if waits for its turn."""
ADVICE_S = 0.05
"""Maximum time that an explanation waits for advice, so that no other reader is kept waiting. Advice that takes longer
is ready for the next request: `swell explain` asks again."""
FRESH_S = 2.0
"""Maximum age of the moment that answers use."""
ADVICE_WAITING = 3
"""Maximum queue of requests for advice: further ones would time out before their turn."""
KEPT_ADVICE = 10_000
LATER = "what would start it sooner is still being worked out; ask again in a few seconds"


class Forecasts:
    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._track = TrackRecord()
        self._live = State()  # as of the last event; read for jobs that have not ended
        self._background = Helper(niceness=15, most_waiting=1, limit_s=FORECAST_LIMIT_S)
        self._asked = Helper(niceness=5, most_waiting=MOST_WAITING, limit_s=ASKED_LIMIT_S)
        self._simulations = Helper(niceness=10, most_waiting=2, limit_s=SIMULATE_LIMIT_S)
        self._moment: tuple[Moment, float] | None = None  # the last one used for answers, and when it was taken
        self._advice: dict[JobId, asyncio.Task[Advice]] = {}  # of that moment
        self.intervals: Mapping[JobId, Interval] = {}
        self.until_s: float | None = None  # how far the latest forecast goes; None: to the end

    @property
    def accuracy(self) -> Accuracy:
        return self._track.accuracy

    def happened(self, events: Sequence[Event], state: State) -> None:
        """New events: forecasts are outdated, and those of jobs that started or ended can be scored."""
        self._live = state
        self._changed.set()
        for event in events:
            self._track.happened(event, state)

    async def run(self, moment: Callable[[], Moment | None]) -> None:
        """Until cancelled: make a new forecast when something has changed or the last one is old."""
        while True:
            await self._due()
            cpu_s = 0.0
            try:
                cpu_s = await self._once(moment())
            except NoAnswer as error:
                log.warning("no forecast could be made; jobs are not affected: %s", error)
            except Exception:
                log.exception("no forecast could be made; jobs are not affected")
            await asyncio.sleep(max(EVERY_S, SHARE * cpu_s))

    async def _due(self) -> None:
        """Waits until something happens, or, while there are jobs, until the last forecast is old."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), AGAIN_S if self._live.active else None)
        self._changed.clear()

    async def stop(self) -> None:
        await self._background.stop()
        await self._asked.stop()
        await self._simulations.stop()

    async def _once(self, now: Moment | None) -> float:
        """Returns the CPU time it took."""
        if now is None or not now.state.active:
            return 0.0
        done = await self._background.do(now, Foresee(samples=samples_of(len(now.state.active))))
        assert isinstance(done.result, Forecast)  # as asked for
        raw, scales = done.result.intervals, await asyncio.to_thread(self._track.calibration.copy().scales, now.now_s)
        shown: dict[JobId, Interval] = {}
        jobs = list(raw)
        for start in range(0, len(jobs), JOBS_AT_ONCE):
            some = {job: raw[job] for job in jobs[start : start + JOBS_AT_ONCE]}
            shown.update(self._track.shown(some, self._live, now.now_s, scales))
            await asyncio.sleep(0)  # requests of the API come first
        self.intervals, self.until_s = shown, done.result.until_s
        return done.cpu_s

    def fresh(self, seq: int, take: Callable[[], Moment | None]) -> Moment | None:
        """The moment that answers use: shared by all requests within FRESH_S or until the next event."""
        now = time.monotonic()
        if self._moment is not None:
            moment, at = self._moment
            if now - at < FRESH_S or (moment.state.seq == seq and now - at < 10 * FRESH_S):
                return moment
        taken = take()
        self._moment = (taken, now) if taken is not None else None
        self._advice = {}
        return taken

    async def advice(self, job: JobId, now: Moment) -> tuple[str, str]:
        """Returns the cheapest change that would start the job, in words (empty: none), and a sentence about what is
        missing in the answer (empty: nothing)."""
        asked = self._advice.get(job)
        if asked is None:
            if len(self._advice) >= KEPT_ADVICE or self._asked.waiting >= ADVICE_WAITING:
                return "", LATER
            asked = self._advice[job] = asyncio.ensure_future(self._advise(job, now))
        await asyncio.wait({asked}, timeout=ADVICE_S)
        if not asked.done():
            return "", LATER
        found = asked.result()
        return found.text, found.missing

    async def _advise(self, job: JobId, now: Moment) -> Advice:
        try:
            done = await self._asked.do(now, Advise(job=job))
        except NoAnswer as error:
            return Advice(missing=f"what would start it sooner is not known: {error}")
        except Busy:
            self._advice.pop(job, None)
            return Advice(missing=LATER)
        assert isinstance(done.result, Advice)  # as asked for
        return done.result

    async def what_if(self, change: Change, now: Moment, book: SpeedBook) -> Sequence[Effect]:
        """Raises Busy or NoAnswer."""
        per_node = gpus_per_node(now.state.nodes.values())
        task = Compare(
            change=replace(change, policy=None, placer=None),
            policy=change.policy.name if change.policy else "",
            placer=change.placer.name if change.placer else "",
            answers=answers_for(book, change.submit, now.state.last_job + 1, now.now_s, per_node),
        )
        done = await self._asked.do(now, task, wait_s=TURN_S)
        assert isinstance(done.result, list)  # as asked for
        return done.result

    async def simulate(self, task: Simulate, now: Moment) -> Simulation:
        """Raises Busy."""
        try:
            done = await self._simulations.do(now, task, wait_s=TURN_S)
        except NoAnswer as error:
            fix = "fewer jobs, hours or policies take less time; `swell sim run` has no limit"
            raise Busy(f"the simulation came to no end ({error}); {fix}") from error
        assert isinstance(done.result, Simulation)  # as asked for
        return done.result


GUESSED = "not every job specified, or showed, how long it takes"


def forecast_sentence(
    record: JobRecord, interval: Interval | None, until_s: float | None, now_s: float, *, guessed: bool = False
) -> str:
    """When it will start and end, for people; empty if there is no forecast. `guessed`: the length of a job that it
    depends on is unknown."""
    if record.ended:
        return ""
    if interval is None:
        if until_s is None or record.holding or record.paused:
            return ""
        return f"starts in more than {duration(max(0.0, until_s - now_s))}: so far ahead the forecast does not look"
    whens = {"ends": (interval.end_low_s - now_s, interval.end_high_s - now_s)}
    if not record.holding:
        whens = {"starts": (interval.start_low_s - now_s, interval.start_high_s - now_s)} | whens
    told = [f"{what} {_between(*when)}" for what, when in whens.items() if not says_nothing(*when)]
    unknown = [what for what, when in whens.items() if says_nothing(*when)]
    told += [f"when it {' and '.join(unknown)} is unknown"] if unknown else []
    why = f" ({GUESSED if unknown else f'a guess: {GUESSED}'})" if guessed else ""
    return ", ".join(told) + why


def _between(low_s: float, high_s: float) -> str:
    if high_s < 1.0:
        return "any moment"
    low, high = duration(max(0.0, low_s)), duration(high_s)
    if low_s < 1.0:
        return f"within {high}"
    return f"in about {high}" if low == high else f"in {low} to {high}"


def samples_of(jobs: int) -> int:
    """The number of samples: fewer for more jobs, so that the cost of a forecast is bounded; at least one."""
    return max(1, min(SAMPLES, LOOKS_AT_JOBS // jobs))
