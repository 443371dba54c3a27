"""Jobs that adapt their batch size: progress per second on any GPUs, from step times and gradient noise.

More GPUs take a larger batch, and each sample of a larger batch contributes less: how much less depends on the
gradient noise φ = tr(Σ)/|G|², which grows during training. So each phase of training has its own speeds, with the batch
that is best for it:

    goodput(k) = max over B of  B₀ · gain(B) / step time(k, B)        gain(B) = (φ/B₀ + 1) / (φ/B + 1)

Curves, by which policies distribute GPUs now, cover the next phases; rates, which forecast the end of a job, cover all
remaining work (ADR 74).

Step times and noise are shared by a family: `Practice` has what was measured of its members. `speed.book` calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import exp, log, sqrt

import numpy as np

from swell.core.events import Batching, EpochEnded
from swell.core.ids import JobId
from swell.core.snapshot import Curve
from swell.speed.batch_choices import Bounds, Sizes, packed, steps
from swell.speed.curves import FittedSpeed
from swell.speed.fit import Fit
from swell.speed.gpu_type_ratios import LogSpeeds, TypeRatios
from swell.speed.measurements import LONGEST_S, SHORTEST_S
from swell.speed.recent_median import RecentMedian
from swell.speed.step_time import STRANGE, Floats, Point, StepModel, fit_closely

PHASES = 20
"""Training is divided into this number of phases with equal numbers of epochs, each with its noise and work."""
AHEAD = 3
"""Number of phases that a curve covers: measurements of a single phase vary more than the job does."""
KEEP_POINTS = 64
SURPRISE = 0.03
"""Models are fitted again when a step time differs by more than this part from the one measured or expected before."""
NOISE_SURPRISE = 0.1
NEAR = 4.0
"""Up to this factor beyond the measured local batches, the computing time counts as known."""
GROWTH = 1.0
"""In phases that no job has reached, noise is assumed to grow with this power of the epochs done."""
_MIDDLES = np.arange(PHASES) + 0.5
_LOG_MIDDLES = np.log(_MIDDLES)
LEAST_WORK, MOST_WORK = 1e-3, 1e18
"""Plausible range of the useful samples of an epoch; values outside come from wrong clocks."""
LEAST_NOISE, MOST_NOISE = 1e-3, 1e6
"""Bounds of φ, in units of the initial and of the largest batch: beyond, further changes make no difference."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Step times of a family on one GPU type: the measured ones, and the model fitted to them."""

    measured: Mapping[Point, tuple[float, float]]
    model: StepModel
    least: int  # smallest local batch that was measured
    most: int  # largest

    @classmethod
    def fitted(cls, measured: Mapping[Point, tuple[float, float]]) -> Steps:
        local = [point[2] for point in measured]
        return cls(measured, fit_closely(measured), min(local), max(local))

    def expected_s(self, point: Point) -> float:
        measured = self.measured.get(point)
        return measured[0] if measured is not None else self.model.step_s(*point)

    def can_tell(self, local: int) -> bool:
        """Whether the computing time of this local batch is known: several were measured, and it is near them."""
        return self.most >= STRANGE * self.least and self.least / NEAR <= local <= self.most * NEAR


class Goodput:
    """Epoch times by phase on any GPUs, from the practice of a family at one time. Immutable."""

    __slots__ = (
        "_at",
        "_bounds",
        "_exchange",
        "_local",
        "_measured",
        "_models",
        "_noise",
        "_speeds",
        "_tables",
        "_work",
        "fit",
    )

    def __init__(self, practice: Practice) -> None:
        self._bounds = {gpu_type: _bounds(batching) for gpu_type, batching in practice.limits.items()}
        known = practice.steps()
        self._measured, self._exchange = sorted(known), practice.type_ratios
        self._models = {gpu_type: found.model for gpu_type, found in known.items()}
        self._local = sqrt(max(found.least for found in known.values()) * min(found.most for found in known.values()))
        counts = {gpu_type: len(found.measured) for gpu_type, found in known.items()}
        main = max(counts, key=lambda gpu_type: (counts[gpu_type], gpu_type))
        self.fit = Fit(reference_type=main, points=sum(counts.values()), epochs=practice.epochs)
        self._noise = np.exp(_filled(practice.noise, GROWTH))
        self._work = np.exp(_filled(practice.work, 0.0))
        self._tables: dict[tuple[str, int, int], tuple[Floats, Floats]] = {}
        self._at: dict[tuple[str, int, int], tuple[list[float], list[float]]] = {}
        self._speeds: dict[tuple[int, int], GoodputSpeed] = {}

    def speed(self, phase: int, max_gpus: int, gpus_per_node: Mapping[str, int]) -> GoodputSpeed:
        """The speed of a job in this phase; the same object each time."""
        found = self._speeds.get((phase, max_gpus))
        if found is None or found.gpus_per_node is not gpus_per_node:
            found = self._speeds[phase, max_gpus] = GoodputSpeed(self, phase, max_gpus, gpus_per_node)
        return found

    def model(self, gpu_type: str) -> StepModel:
        """The step model of a type. For one that no member has used: the model of the reference type, scaled by the
        ratio that other families have between the types."""
        found = self._models.get(gpu_type)
        if found is None:
            known = self.fit.reference_type
            measured = self.log_speeds()
            slower = exp(measured[known] - self._exchange.guess(measured, gpu_type))
            found = self._models[gpu_type] = self._models[known].slower(slower)
        return found

    def log_speeds(self) -> LogSpeeds:
        """Computing speed of one GPU by used type, with a local batch near the measured ones: the time of a whole batch
        on one GPU is unknown if twenty GPUs have always shared it."""
        return {gpu_type: -log(self._models[gpu_type].compute_s(self._local)) for gpu_type in self._measured}

    def table(self, gpu_type: str, max_gpus: int, per_node: int) -> Floats:
        """Seconds of an epoch of each phase (rows) on 1 … max GPUs (columns), on as few nodes as possible."""
        key = (gpu_type, max_gpus, max(1, per_node))
        found = self._tables.get(key)
        if found is None:
            times = self._times(gpu_type, packed(max_gpus, per_node))
            found = self._tables[key] = times, times[::-1].cumsum(axis=0)[::-1]
        return found[0]

    def at(self, gpu_type: str, gpus: int, nodes: int) -> list[float]:
        """Seconds of an epoch of each phase on these GPUs."""
        return self._place(gpu_type, gpus, nodes)[0]

    def left(self, gpu_type: str, gpus: int, nodes: int) -> list[float]:
        """The same, summed up over each phase and those after it."""
        return self._place(gpu_type, gpus, nodes)[1]

    def _place(self, gpu_type: str, gpus: int, nodes: int) -> tuple[list[float], list[float]]:
        key = (gpu_type, gpus, nodes)
        found = self._at.get(key)
        if found is None:
            found = self._at[key] = self._tabled(gpu_type, gpus, nodes) or self._alone(gpu_type, gpus, nodes)
        return found

    def _tabled(self, gpu_type: str, gpus: int, nodes: int) -> tuple[list[float], list[float]] | None:
        """From an existing table, if one has it."""
        for (of_type, most, per_node), (times, left) in self._tables.items():
            if of_type == gpu_type and gpus <= most and nodes == -(-gpus // per_node):
                return times[:, gpus - 1].tolist(), left[:, gpus - 1].tolist()
        return None

    def _alone(self, gpu_type: str, gpus: int, nodes: int) -> tuple[list[float], list[float]]:
        times: list[float] = self._times(gpu_type, ((gpus, nodes),))[:, 0].tolist()
        return times, list(accumulate(reversed(times)))[::-1]

    def _times(self, gpu_type: str, sizes: Sizes) -> Floats:
        """Seconds of an epoch of each phase (rows) on each size, with the batch that is best for it."""
        bounds = self._bounds.get(gpu_type) or self._bounds[self.fit.reference_type]
        step_s, sample_s = steps(self.model(gpu_type), bounds, sizes)
        # Goodput is (φ + B₀) / ((φ / B + 1) · step time): minimise the denominator.
        slowness = self._noise[:, None, None] * sample_s
        slowness += step_s
        work = self._work / (self._noise + bounds.initial)
        return np.asarray(work[:, None] * slowness.min(axis=1))


class Practice:
    """Measurements of the jobs of one family with adaptive batch sizes."""

    __slots__ = ("_goodput", "_news", "_paces", "_steps", "epochs", "limits", "noise", "points", "type_ratios", "work")

    def __init__(self, type_ratios: TypeRatios) -> None:
        self.type_ratios = type_ratios  # for types that no member has used
        self.limits: dict[str, Batching] = {}  # as last reported, by GPU type
        self.epochs = 0  # reported in total
        # By GPU type: (step, of which synchronisation).
        self.points: dict[str, dict[Point, tuple[RecentMedian, RecentMedian]]] = {}
        self.noise: dict[int, RecentMedian] = {}  # log φ by phase
        self.work: dict[int, RecentMedian] = {}  # log of useful samples of an epoch, by phase
        self._paces: dict[JobId, RecentMedian] = {}  # computing time over the expected one, of the last members
        self._steps: dict[str, Steps] = {}  # of types without surprising measurements since
        self._goodput: Goodput | None = None
        self._news = False

    def add(self, event: EpochEnded, batching: Batching, epochs_total: int) -> None:
        if not 0 < batching.initial <= batching.largest or not self._add_step(event, batching):
            return
        self.limits[event.gpu_type] = batching
        self.epochs += event.count
        phase = phase_of(event.epoch - 0.5 if event.count else event.epoch + 0.5, epochs_total)
        self._add_phase(self.noise, phase, _log_noise(batching))
        if LEAST_WORK < event.goodput * event.epoch_s < MOST_WORK:
            self._add_phase(self.work, phase, log(event.goodput * event.epoch_s))

    def _add_step(self, event: EpochEnded, batching: Batching) -> bool:
        """Add the step time of a report. False: it is implausible."""
        sync_s = max(0.0, batching.sync_s)
        compute_s = (event.step_s - sync_s) / (max(0, batching.accumulate) + 1)
        if not SHORTEST_S < compute_s < LONGEST_S:
            return False
        point = (max(1, event.nodes), max(1, event.gpus), max(1, batching.local))
        pace = self._pace(event, batching.local, compute_s)
        points = self.points.setdefault(event.gpu_type, {})
        step_s, sync_s = (compute_s + sync_s) / pace, sync_s / pace
        times = points.pop(point, None)
        if times is None:
            times = RecentMedian(step_s), RecentMedian(sync_s)
        else:
            times[0].add(step_s)
            times[1].add(sync_s)
        points[point] = times  # last in order: the most recent
        if len(points) > KEEP_POINTS:
            del points[next(iter(points))]
        known = self._steps.get(event.gpu_type)
        expected_s = known.expected_s(point) if known is not None else 0.0
        if abs(times[0].typical - expected_s) > SURPRISE * expected_s:
            self._steps.pop(event.gpu_type, None)
            self._news = True
        return True

    def _pace(self, event: EpochEnded, local: int, compute_s: float) -> float:
        """How many times slower this member computes than the others, if it is clearly another kind of job; its step
        times are scaled by that. 1.0 if its local batch is far from those that were measured."""
        steps = self.steps().get(event.gpu_type)
        if steps is None or not steps.can_tell(local):
            return 1.0
        pace = compute_s / steps.model.compute_s(local)
        paces = self._paces.get(event.run.job)
        if paces is not None:
            paces.add(pace)
            pace = paces.typical
        else:
            self._paces[event.run.job] = RecentMedian(pace)
            if len(self._paces) > KEEP_POINTS:
                del self._paces[next(iter(self._paces))]
        return 1.0 if 1.0 / STRANGE < pace < STRANGE else pace

    def _add_phase(self, by_phase: dict[int, RecentMedian], phase: int, value: float | None) -> None:
        if value is None:
            return
        last = by_phase.get(phase)
        if last is None:
            by_phase[phase] = RecentMedian(value)
            self._news = True
            return
        before = last.typical
        last.add(value)
        if abs(last.typical - before) > NOISE_SURPRISE:
            self._news = True

    def steps(self) -> Mapping[str, Steps]:
        """By GPU type."""
        for gpu_type in self.points:
            if gpu_type not in self._steps:
                points = self.points[gpu_type]
                measured = {point: (step.typical, sync.typical) for point, (step, sync) in points.items()}
                self._steps[gpu_type] = Steps.fitted(measured)
        return self._steps

    def follow(self, type_ratios: TypeRatios) -> None:
        """Use these ratios for types that no member has used."""
        self.type_ratios = type_ratios
        self._news = self._news or any(gpu_type not in self.points for gpu_type in type_ratios.levels)

    @property
    def ready(self) -> bool:
        """Whether step times and work were measured."""
        return bool(self.points and self.work)

    def fit(self) -> None:
        """Fit again, if there were surprising measurements."""
        if self._news and self.ready:
            self._news = False
            self._goodput = Goodput(self)

    @property
    def goodput(self) -> Goodput | None:
        """The last fit. None: not ready."""
        return self._goodput


def phase_of(epoch: float, epochs_total: int) -> int:
    """The phase of an epoch. If the number of epochs is unknown, every epoch is in the first phase."""
    if not epochs_total:
        return 0
    phase = int(PHASES * epoch / epochs_total)
    return phase if 0 <= phase < PHASES else PHASES - 1 if phase > 0 else 0


def _bounds(batching: Batching) -> Bounds:
    return Bounds(batching.initial, batching.largest, batching.local_min, batching.local_max)


def _log_noise(batching: Batching) -> float | None:
    sqr, var = batching.grad_sqr, batching.grad_var
    if sqr <= 0.0 and var <= 0.0:
        return None
    low, high = LEAST_NOISE * batching.initial, MOST_NOISE * batching.largest
    return log(min(max(var / sqr, low), high)) if sqr > 0.0 else log(high)


def _filled(by_phase: Mapping[int, RecentMedian], growth: float) -> Floats:
    """Logarithms by phase: interpolated between known ones, constant before them, growing after them."""
    if not by_phase:
        return np.zeros(PHASES)
    known = sorted(by_phase)
    values = np.interp(_MIDDLES, [p + 0.5 for p in known], [by_phase[p].typical for p in known])
    if growth:
        values += growth * np.maximum(_LOG_MIDDLES - log(known[-1] + 0.5), 0.0)
    return np.asarray(values)


class GoodputSpeed(FittedSpeed):
    """Speeds of a job with an adaptive batch size from one phase on: the curve of the next phases, the rate of all."""

    __slots__ = ("_reference_s", "goodput", "phase")

    def __init__(self, goodput: Goodput, phase: int, max_gpus: int, gpus_per_node: Mapping[str, int]) -> None:
        super().__init__(goodput.fit, max_gpus, gpus_per_node)
        self.goodput, self.phase = goodput, phase
        reference = goodput.fit.reference_type
        goodput.table(reference, self._max_gpus, gpus_per_node.get(reference, self._max_gpus))  # most will be asked for
        self._reference_s = goodput.left(reference, 1, 1)[phase]

    def rate(self, gpus: int, nodes: int, gpu_type: str) -> float:
        return self._reference_s / self.goodput.left(gpu_type, max(1, gpus), max(1, nodes))[self.phase]

    def _make(self, gpu_type: str) -> Curve:
        table = self.goodput.table(gpu_type, self._max_gpus, self.gpus_per_node.get(gpu_type, self._max_gpus))
        ahead = slice(self.phase, self.phase + AHEAD)
        ahead_1_s = sum(self.goodput.at(self.goodput.fit.reference_type, 1, 1)[ahead])
        speed = ahead_1_s / table[ahead].sum(axis=0)
        return (0.0, *np.maximum.accumulate(speed).tolist())
