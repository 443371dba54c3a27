"""Jobs that adapt their batch size: progress a second on any GPUs, from step times and gradient noise.

More GPUs take a larger batch, and samples of a larger batch teach less each: how much less depends on the gradient's
noise φ = tr(Σ)/|G|², which grows as training goes on. So each phase of training has its own speeds, with the batch
that is best for it:

    goodput(k) = max over B of  B₀ · gain(B) / step time(k, B)        gain(B) = (φ/B₀ + 1) / (φ/B + 1)

Curves, by which policies share out GPUs now, describe the phases just ahead; rates, which forecast when a job ends,
describe all that is left (ADR 74).

Step times and noise are shared by a family: `Practice` is what its members have shown.
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
"""Training is cut into this number of parts of equal numbers of epochs, each with its noise and work."""
AHEAD = 3
"""Phases that a curve is of: what is learned of a single one varies more than the job does."""
KEEP_POINTS = 64
SURPRISE = 0.03
"""Models are fitted again when a step differs by more than this part from what was measured or expected before."""
NOISE_SURPRISE = 0.1
NEAR = 4.0
"""Up to this factor beyond the local batches that were measured, the time of computing is taken to be known."""
GROWTH = 1.0
"""In phases that nobody has reached, noise is taken to grow with this power of the epochs done."""
_MIDDLES = np.arange(PHASES) + 0.5
_LOG_MIDDLES = np.log(_MIDDLES)
LEAST_WORK, MOST_WORK = 1e-3, 1e18
"""Useful samples of an epoch; outside are clocks gone wrong."""
LEAST_NOISE, MOST_NOISE = 1e-3, 1e6
"""Of φ, in initial and in largest batches: beyond, only the one or the other counts."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of a family on one GPU type: as measured, and the model fitted to that."""

    measured: Mapping[Point, tuple[float, float]]
    model: StepModel
    least: int  # local batch that was measured
    most: int

    @classmethod
    def fitted(cls, measured: Mapping[Point, tuple[float, float]]) -> Steps:
        local = [point[2] for point in measured]
        return cls(measured, fit_closely(measured), min(local), max(local))

    def expected_s(self, point: Point) -> float:
        measured = self.measured.get(point)
        return measured[0] if measured is not None else self.model.step_s(*point)

    def can_tell(self, local: int) -> bool:
        """How long computing takes with such a local batch: several were measured, and this one is near them."""
        return self.most >= STRANGE * self.least and self.least / NEAR <= local <= self.most * NEAR


class Goodput:
    """What follows from the practice of a family, as of now: epoch times by phase on any GPUs. Never changes."""

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
        """Of a job in this phase; the same object each time."""
        found = self._speeds.get((phase, max_gpus))
        if found is None or found.gpus_per_node is not gpus_per_node:
            found = self._speeds[phase, max_gpus] = GoodputSpeed(self, phase, max_gpus, gpus_per_node)
        return found

    def model(self, gpu_type: str) -> StepModel:
        """Of a type that nobody has used: as another, so much faster or slower as other families were there."""
        found = self._models.get(gpu_type)
        if found is None:
            known = self.fit.reference_type
            measured = self.log_speeds()
            slower = exp(measured[known] - self._exchange.guess(measured, gpu_type))
            found = self._models[gpu_type] = self._models[known].slower(slower)
        return found

    def log_speeds(self) -> LogSpeeds:
        """Of one GPU at computing, by type, of those that were used: with a local batch near what each has measured,
        since nobody knows what a whole batch takes on a GPU of which twenty have shared it."""
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
        """Seconds of an epoch of each phase there."""
        return self._place(gpu_type, gpus, nodes)[0]

    def left(self, gpu_type: str, gpus: int, nodes: int) -> list[float]:
        """The same as sums: of each phase and those after it."""
        return self._place(gpu_type, gpus, nodes)[1]

    def _place(self, gpu_type: str, gpus: int, nodes: int) -> tuple[list[float], list[float]]:
        key = (gpu_type, gpus, nodes)
        found = self._at.get(key)
        if found is None:
            found = self._at[key] = self._tabled(gpu_type, gpus, nodes) or self._alone(gpu_type, gpus, nodes)
        return found

    def _tabled(self, gpu_type: str, gpus: int, nodes: int) -> tuple[list[float], list[float]] | None:
        """From a table that was made, if it is in one."""
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
        # Goodput is (φ + B₀) / (φ / B + 1) / step time: the least of the two last terms' product is wanted.
        slowness = self._noise[:, None, None] * sample_s
        slowness += step_s
        work = self._work / (self._noise + bounds.initial)
        return np.asarray(work[:, None] * slowness.min(axis=1))


class Practice:
    """What jobs of one family with adaptive batch sizes have shown."""

    __slots__ = ("_goodput", "_news", "_paces", "_steps", "epochs", "limits", "noise", "points", "type_ratios", "work")

    def __init__(self, type_ratios: TypeRatios) -> None:
        self.type_ratios = type_ratios  # for types that it has not used
        self.limits: dict[str, Batching] = {}  # as last reported, by GPU type
        self.epochs = 0  # reported, ever
        # By GPU type: (step, of which synchronisation).
        self.points: dict[str, dict[Point, tuple[RecentMedian, RecentMedian]]] = {}
        self.noise: dict[int, RecentMedian] = {}  # log φ by phase
        self.work: dict[int, RecentMedian] = {}  # log of useful samples of an epoch, by phase
        self._paces: dict[JobId, RecentMedian] = {}  # computing time over what was expected, of the last members
        self._steps: dict[str, Steps] = {}  # of types on which nothing surprising was measured since
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
        """False: these cannot be times of a step."""
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
        """How many times slower this member computes than the others, if it clearly is another kind of job: its steps
        are compared with theirs in proportion. Asked only near the local batches that the others have shown."""
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
        """Take types that nobody has used to be as this says."""
        self.type_ratios = type_ratios
        self._news = self._news or any(gpu_type not in self.points for gpu_type in type_ratios.levels)

    @property
    def ready(self) -> bool:
        """Steps and work were measured."""
        return bool(self.points and self.work)

    def fit(self) -> None:
        """Follow what was learned, if that is surprising."""
        if self._news and self.ready:
            self._news = False
            self._goodput = Goodput(self)

    @property
    def goodput(self) -> Goodput | None:
        """As last fitted. None: not ready."""
        return self._goodput


def phase_of(epoch: float, epochs_total: int) -> int:
    """Of a job whose number of epochs is not known, every epoch is in the first phase."""
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
    """Logarithms by phase: between known ones in proportion, before them as the first, after them growing."""
    if not by_phase:
        return np.zeros(PHASES)
    known = sorted(by_phase)
    values = np.interp(_MIDDLES, [p + 0.5 for p in known], [by_phase[p].typical for p in known])
    if growth:
        values += growth * np.maximum(_LOG_MIDDLES - log(known[-1] + 0.5), 0.0)
    return np.asarray(values)


class GoodputSpeed(FittedSpeed):
    """Speeds of a job with an adaptive batch size from one phase on: the curve of the next few, the rate of all."""

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
