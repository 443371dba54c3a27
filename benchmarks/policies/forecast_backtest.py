"""How good would the daemon's forecasts have been? A workload is simulated, and every quarter of an hour all that has
not ended is forecast as the daemon does it, learning from what came of its forecasts. Arrivals to come are not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from swell.core.events import Event, ExitReason, RunEnded
from swell.core.ids import JobId
from swell.core.state import State
from swell.policy.registry import policy_named
from swell.sim.engine import Setup, Simulation
from swell.sim.forecast import forecast, says_nothing
from swell.sim.forecast_accuracy import TrackRecord
from swell.sim.simulate import Case, Scene, scenes, setup_of

EVERY_S = 900.0
SAMPLES = 4
"""As many as the daemon makes of a few hundred jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One forecast of one job, in seconds from when it was made, and what came of it."""

    job: JobId
    at_s: float
    waiting: bool
    age_s: float  # since it first started; 0: it has not
    raw_s: float  # as the simulation expected it
    low_s: float
    mid_s: float
    high_s: float
    took_s: float = math.nan  # until it ended

    @property
    def inside(self) -> bool:
        return self.low_s <= self.took_s <= self.high_s

    @property
    def unknown(self) -> bool:
        """People were told no number."""
        return says_nothing(self.low_s, self.high_s)

    def error(self, said_s: float) -> float:
        return abs(said_s - self.took_s) / max(1.0, self.took_s)


@dataclass(slots=True)
class Backtest:
    """Watches a simulation and forecasts in between."""

    setup: Setup
    scene: Scene
    every_s: float = EVERY_S
    track: TrackRecord = field(default_factory=TrackRecord)
    told: list[Told] = field(default_factory=list)
    ends: dict[JobId, float] = field(default_factory=dict)
    next_s: float = 0.0

    def __call__(self, state: State, event: Event) -> None:
        self.track.happened(event, state)
        if isinstance(event, RunEnded) and event.reason is ExitReason.FINISHED:
            self.ends[event.run.job] = event.at_s

    def look_ahead(self, state: State, now_s: float) -> None:
        if now_s < self.next_s or not state.active:
            return
        self.next_s = now_s + self.every_s
        setup = self.setup
        policy = policy_named(setup.policy.name)  # the simulation's own remembers what it saw
        raw = forecast(state, self.scene.book, policy, setup.placer, setup.options, now_s, SAMPLES).intervals
        scales = self.track.calibration.scales(now_s)
        for job, said in self.track.shown(raw, state, now_s, scales).items():
            started_s = state.jobs[job].first_started_s
            self.told.append(
                Told(
                    job=job,
                    at_s=now_s,
                    waiting=not state.jobs[job].holding,
                    age_s=0.0 if started_s is None else now_s - started_s,
                    raw_s=raw[job].end_mid_s - now_s,
                    low_s=said.end_low_s - now_s,
                    mid_s=said.end_mid_s - now_s,
                    high_s=said.end_high_s - now_s,
                )
            )


def backtest(case: Case, every_s: float = EVERY_S) -> list[Told]:
    """Every forecast of a job that ended well, in order of time."""
    found: list[Told] = []
    for scene in scenes(case):
        setup = setup_of(case, scene.nodes)
        watch = Backtest(setup, scene, every_s)
        simulation = Simulation(setup, scene.world, scene.book, (watch,))
        simulation.on_pass = _looking(watch, simulation)
        simulation.run(scene.workload)
        found += [judged(one, watch.ends[one.job]) for one in watch.told if one.job in watch.ends]
    return found


def _looking(watch: Backtest, simulation: Simulation) -> Callable[[float], object]:
    return lambda now_s: watch.look_ahead(simulation.state, now_s)


def judged(told: Told, end_s: float) -> Told:
    return replace(told, took_s=end_s - told.at_s)


def apart(each: Sequence[Sequence[Told]]) -> list[Told]:
    """Of several workloads together. A job's number is that of its workload: told apart, or one would hide another."""
    return [replace(one, job=one.job + 1_000_000 * i) for i, told in enumerate(each) for one in told]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """On some forecasts."""

    forecasts: int
    inside: float  # part of them
    first_inside: float  # of the first forecast of each job
    raw_error: float  # median, relative, before calibration
    error: float  # median, relative
    width: float  # median of high over low
    unknown: float  # part of them of which people were told no number


def verdict(told: Sequence[Told]) -> Verdict:
    """Of at least one."""
    first = {one.job: one for one in reversed(told)}
    return Verdict(
        forecasts=len(told),
        inside=sum(one.inside for one in told) / len(told),
        first_inside=sum(one.inside for one in first.values()) / len(first),
        raw_error=median(one.error(one.raw_s) for one in told),
        error=median(one.error(one.mid_s) for one in told),
        width=median(one.high_s / one.low_s for one in told),
        unknown=sum(one.unknown for one in told) / len(told),
    )
