"""Honest intervals: forecasts are judged by what came of those before them, and widened or shifted by it.

A forecast states that something is `left_s` away. Its outcome is scored by log(actual / forecast), in units of the
spread its samples had. The quantiles of recent scores, with a prior before there are any, make the interval in which
`COVERAGE` of the ends are to lie. What has not happened yet counts too, as "at least so long" (the product-limit
estimate of Kaplan and Meier): those that end soon would else make every forecast too short.

The constants were chosen on Pollux workloads 1 and 2, the priors on generated workloads (ADR 60 and 84).
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from swell.core.ids import JobId
from swell.core.state import JobRecord
from swell.sim.forecast import Interval

COVERAGE = 0.8
PRIOR_JOBS = 10.0
"""The prior weighs as much as this number of jobs."""
GROWN = 0.3
"""Of its epochs: from then on a job shows what is still to come."""
FAR_S = 3600.0
LEAST_SPREAD = 0.45
"""Of the logarithm, however sure models are: what others will do to a job is not known better."""
KEPT = 1000
"""Scores of each kind; older ones say little of how forecasts are now."""
LATER = 1.0
"""A job's forecasts are kept sparser and sparser: the next when this many times as long has passed since the first."""
LIMIT = 7.0
"""Of the logarithm of a factor: a forecast beyond a thousandfold is not widened further."""

Floats = npt.NDArray[np.float64]
POINTS = tuple(NormalDist().inv_cdf((i + 0.5) / 19) for i in range(19))


class Kind(StrEnum):
    """Of what is forecast: errors differ. How far a job is matters most; of those that have shown how long they are,
    whether they wait: others that come go before them."""

    START = "start"
    SILENT = "silent"  # the end of a job that does not say how many epochs it has
    PINNED = "pinned"  # … and cannot be stopped: nobody goes before it
    FIRST = "first"  # … that has not finished an epoch
    WAITS = "waits"  # … that has, and waits
    YOUNG = "young"  # … that has finished less than `GROWN` of its epochs: they may get shorter or longer
    GROWN = "grown"
    FIRST_FAR = "first-far"  # the same of jobs that run and have more than `FAR_S` to go: more will come between
    YOUNG_FAR = "young-far"
    GROWN_FAR = "grown-far"


PRIOR_SCORE = {
    Kind.START: (0.0, 1.0),
    Kind.SILENT: (0.0, 1.3),
    Kind.PINNED: (0.0, 0.9),
    Kind.FIRST: (0.0, 0.9),
    Kind.WAITS: (0.15, 0.65),
    Kind.YOUNG: (0.0, 0.7),
    Kind.GROWN: (0.0, 0.5),
    Kind.FIRST_FAR: (0.0, 1.0),
    Kind.YOUNG_FAR: (0.0, 0.6),
    Kind.GROWN_FAR: (0.0, 0.4),
}
FAR = {Kind.FIRST: Kind.FIRST_FAR, Kind.YOUNG: Kind.YOUNG_FAR, Kind.GROWN: Kind.GROWN_FAR}
"""Mean and standard deviation of scores before any is known. A silent job is off by more than its samples are apart;
one that shows what is to come is known better than `LEAST_SPREAD` says; one that waits, more often waits longer."""


@dataclass(frozen=True, slots=True)
class Guess:
    kind: Kind
    at_s: float
    left_s: float
    spread: float

    def score(self, passed_s: float) -> float:
        return math.log(max(1.0, passed_s) / self.left_s) / self.spread


@dataclass(frozen=True, slots=True)
class Scales:
    """By which scores an interval reaches to its low end, its middle and its high end."""

    low: float
    mid: float
    high: float

    def around(self, guess: Guess) -> tuple[float, float, float]:
        """Absolute times."""
        low, mid, high = (
            guess.at_s + guess.left_s * math.exp(max(-LIMIT, min(LIMIT, score * guess.spread)))
            for score in (self.low, self.mid, self.high)
        )
        return low, mid, high


@dataclass(slots=True)
class Calibration:
    _open: dict[JobId, list[Guess]] = field(default_factory=dict)  # what has not happened yet
    _scores: dict[Kind, deque[tuple[float, float]]] = field(
        default_factory=lambda: {kind: deque(maxlen=KEPT) for kind in Kind}
    )  # (score, weight): a job weighs 1 in each kind, however often it was forecast

    def made(self, job: JobId, guess: Guess) -> None:
        kept = self._open.setdefault(job, [])
        same = [one.at_s for one in kept if one.kind is guess.kind]
        if not same or guess.at_s - same[-1] >= LATER * (same[-1] - same[0]):
            kept.append(guess)

    def started(self, job: JobId, at_s: float) -> None:
        guesses = self._open.get(job)
        if guesses is None:
            return
        self._judge([one for one in guesses if one.kind is Kind.START], at_s)
        self._open[job] = [one for one in guesses if one.kind is not Kind.START]

    def ended(self, job: JobId, at_s: float) -> None:
        guesses = [one for one in self._open.pop(job, []) if one.kind is not Kind.START]
        for kind in Kind:
            self._judge([one for one in guesses if one.kind is kind], at_s)

    def forget(self, job: JobId) -> None:
        """It was cancelled or failed, which says nothing of forecasts."""
        self._open.pop(job, None)

    def _judge(self, guesses: Sequence[Guess], at_s: float) -> None:
        for one in guesses:
            self._scores[one.kind].append((one.score(at_s - one.at_s), 1.0 / len(guesses)))

    def copy(self) -> Calibration:
        """One to compute with elsewhere, while this one goes on."""
        scores = {kind: deque(found, maxlen=KEPT) for kind, found in self._scores.items()}
        return Calibration({job: list(guesses) for job, guesses in self._open.items()}, scores)

    def scales(self, now_s: float) -> Mapping[Kind, Scales]:
        tail = (1.0 - COVERAGE) / 2.0
        waits = list(self._waits(now_s))
        found: dict[Kind, Scales] = {}
        for kind in Kind:
            mean, deviation = PRIOR_SCORE[kind]
            prior = ((mean + deviation * point, PRIOR_JOBS / len(POINTS)) for point in POINTS)
            happened = [*self._scores[kind], *prior]
            open_ones = [(score, weight) for its, score, weight in waits if its is kind]
            low, mid, high = quantiles(happened, open_ones, (tail, 0.5, 1.0 - tail))
            found[kind] = Scales(low, mid, high)
        return found

    def _waits(self, now_s: float) -> Iterable[tuple[Kind, float, float]]:
        """(kind, score it has at least, weight) of all that has not happened yet."""
        for guesses in self._open.values():
            counts = Counter(one.kind for one in guesses)
            for one in guesses:
                yield one.kind, one.score(now_s - one.at_s), 1.0 / counts[one.kind]


def quantiles(
    happened: Sequence[tuple[float, float]], waits: Sequence[tuple[float, float]], parts: Sequence[float]
) -> list[float]:
    """Of weighted (value, weight), of which `waits` are known to be at least so large. `happened` is not empty."""
    values: Floats = np.array([value for value, _ in (*happened, *waits)])
    weights: Floats = np.array([weight for _, weight in (*happened, *waits)])
    seen = np.arange(len(values)) < len(happened)
    order = np.lexsort((~seen, values))  # of equal ones, what happened comes first
    values, weights, seen = values[order], weights[order], seen[order]
    at_risk = np.cumsum(weights[::-1])[::-1]
    later = np.cumprod(np.where(seen, 1.0 - weights / at_risk, 1.0))  # the part that is larger than each
    places = np.searchsorted(-later, [part - 1.0 for part in parts])
    return [float(values[min(int(place), len(values) - 1)]) for place in places]


def guesses_of(interval: Interval, job: JobRecord, now_s: float) -> tuple[Guess, ...]:
    """What an interval says: of a job that waits its end and its start, of one that runs its end."""
    kind = _kind(job)
    if job.holding and interval.end_mid_s > now_s + FAR_S:
        kind = FAR.get(kind, kind)
    end = _guess(kind, now_s, interval.end_low_s, interval.end_mid_s, interval.end_high_s)
    if job.holding:
        return (end,)
    return end, _guess(Kind.START, now_s, interval.start_low_s, interval.start_mid_s, interval.start_high_s)


def _kind(job: JobRecord) -> Kind:
    if not job.epochs_total:
        return Kind.SILENT if job.may_be_stopped else Kind.PINNED
    if not job.epochs_done:
        return Kind.FIRST
    if not job.holding:
        return Kind.WAITS
    return Kind.YOUNG if job.epochs_done < GROWN * job.epochs_total else Kind.GROWN


def _guess(kind: Kind, now_s: float, low_s: float, mid_s: float, high_s: float) -> Guess:
    width = math.log(max(1.0, high_s - now_s) / max(1.0, low_s - now_s)) / 2.0
    return Guess(kind, now_s, max(1.0, mid_s - now_s), math.hypot(LEAST_SPREAD, min(2.0, width)))


def honest(interval: Interval, guesses: Sequence[Guess], scales: Mapping[Kind, Scales]) -> Interval:
    """The interval that `COVERAGE` of the ends are in, by what came of forecasts so far."""
    end = guesses[0]
    low_s, mid_s, high_s = scales[end.kind].around(end)
    found = replace(interval, end_low_s=low_s, end_mid_s=mid_s, end_high_s=high_s)
    if len(guesses) == 1:
        return found
    starts = scales[Kind.START].around(guesses[1])
    return replace(
        found,
        start_low_s=min(starts[0], low_s),  # nothing starts after its end
        start_mid_s=min(starts[1], mid_s),
        start_high_s=min(starts[2], high_s),
    )
