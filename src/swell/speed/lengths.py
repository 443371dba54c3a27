"""Lengths of jobs as a distribution: from all jobs, from the family, and from the user's estimate.

`speed.book` reports every length that becomes known; `speed.remaining` queries it for jobs without measurements.
Logarithms of lengths (seconds of work at speed 1) are modelled as normal, because lengths are heavy-tailed: most are
short and a few are a hundred times as long. Each source is weighted by its accuracy so far: a family whose members have
nothing in common counts little, and so do estimates that are off by a factor of a hundred. Members are compared by
their whole lengths or by their lengths per epoch, whichever predicted the later ones better.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from statistics import NormalDist, fmean

PRIOR_MEDIAN_S = 1800.0
PRIOR_SIGMA = 2.0
"""The prior for all jobs: about the published distribution of production clusters (Philly, Helios)."""
PRIOR_JOBS = 4.0
"""The priors have the weight of this number of jobs."""
FAMILY_PART = 0.5
"""Prior part of the variance that lies between families."""
ESTIMATE_SIGMA = 1.1
"""Prior deviation of estimates: a factor of three."""
KEEP = 256
"""Number of jobs that are kept; older ones are less relevant."""
KEEP_OF_FAMILY = 8
LEAST_SIGMA, MOST_SIGMA = 0.3, 3.0
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Length:
    """The log-normal length of a job at speed 1, from its beginning."""

    median_s: float
    sigma: float

    def left_s(self, done_s: float, part: float = 0.5) -> float:
        """The quantile `part` of the remaining work, given that `done_s` is done and the job has not ended."""
        if done_s <= 0.0:
            return self.median_s * exp(self.sigma * _NORMAL.inv_cdf(part))
        ended = _NORMAL.cdf(log(done_s / self.median_s) / self.sigma)
        at = min(ended + part * (1.0 - ended), 1.0 - 1e-9)
        return max(self.median_s * exp(self.sigma * _NORMAL.inv_cdf(max(at, 1e-9))) - done_s, 0.05 * done_s)


@dataclass(frozen=True, slots=True)
class _Seen:
    family: str
    log_s: float
    log_estimate: float | None
    log_epochs: float | None


@dataclass(frozen=True, slots=True)
class _Families:
    """Logarithms of the lengths of their last members, and the variance of the next one."""

    members: dict[str, list[float]]
    within: float


@dataclass(frozen=True, slots=True)
class _Spread:
    """Mean and variance of the lengths seen: overall, and within families."""

    mean: float
    variance: float
    whole: _Families
    per_epoch: _Families
    bias: float  # of estimates: mean log of length divided by estimate
    estimate_variance: float


class Lengths:
    due = False  # estimates must be computed again; a class attribute, for older kept books without it

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}
        self._spread: _Spread | None = None
        self._news = 0  # lengths since estimates were last due
        self.edition = 0  # grows with each `publish` that was due

    def saw(self, job: int, family: str, work_1_s: float, estimated_1_s: float, epochs: int = 0) -> None:
        """A job's length is known, from its epochs or because it ended. The latest value counts."""
        if work_1_s <= 0.0:
            return
        estimate = log(estimated_1_s) if estimated_1_s > 0.0 else None
        self._seen.pop(job, None)
        self._seen[job] = _Seen(family, log(work_1_s), estimate, log(epochs) if epochs else None)
        if len(self._seen) > KEEP:
            del self._seen[next(iter(self._seen))]
        self._news += 1
        if self._news * 8 >= len(self._seen):  # not at each, because all estimates of pending jobs are computed again
            self._news, self.due = 0, True

    def publish(self) -> None:
        """Use the new lengths, if that is due. Until then answers stay the same."""
        if self.due:
            self.due, self._spread = False, None
            self._known()
            self.edition += 1

    def _known(self) -> _Spread:
        self._spread = self._spread or _spread(list(self._seen.values()))
        return self._spread

    def of(self, family: str, estimated_1_s: float = 0.0, family_guess_1_s: float = 0.0, *, epochs: int = 0) -> Length:
        """The length of a job without measurements. `family_guess_1_s`: from members that are still running."""
        spread = self._known()
        mean, variance = _of_family(spread, family, family_guess_1_s, epochs)
        if estimated_1_s > 0.0:
            estimate = log(estimated_1_s) + spread.bias
            weight = variance / (variance + spread.estimate_variance)
            mean, variance = mean + weight * (estimate - mean), variance * (1.0 - weight)
        return Length(exp(mean), min(max(sqrt(variance), LEAST_SIGMA), MOST_SIGMA))


def _of_family(spread: _Spread, family: str, guess_1_s: float, epochs: int) -> tuple[float, float]:
    """Mean and variance, weighted between all jobs and the family's last members."""
    members, within = spread.whole.members.get(family, []), spread.whole.within
    if epochs and family in spread.per_epoch.members and spread.per_epoch.within <= within:
        members, within = [one + log(epochs) for one in spread.per_epoch.members[family]], spread.per_epoch.within
    if not members and guess_1_s > 0.0:
        members = [log(guess_1_s)]
    between = max(spread.variance - within, 0.0)
    if not members or not between:
        return spread.mean, spread.variance
    weight = between / (between + within / len(members))
    return spread.mean + weight * (fmean(members) - spread.mean), within + between * (1.0 - weight)


def _spread(seen: Sequence[_Seen]) -> _Spread:
    mean = _towards([one.log_s for one in seen], log(PRIOR_MEDIAN_S))
    variance = _towards([(one.log_s - mean) ** 2 for one in seen], PRIOR_SIGMA**2)
    off = [one.log_s - one.log_estimate for one in seen if one.log_estimate is not None]
    bias = _towards(off, 0.0)
    return _Spread(
        mean=mean,
        variance=variance,
        whole=_families([(one.family, one.log_s) for one in seen], variance),
        per_epoch=_families(
            [(one.family, one.log_s - one.log_epochs) for one in seen if one.log_epochs is not None], variance
        ),
        bias=bias,
        estimate_variance=_towards([(one - bias) ** 2 for one in off], ESTIMATE_SIGMA**2),
    )


def _families(seen: Sequence[tuple[str, float]], variance: float) -> _Families:
    families: defaultdict[str, list[float]] = defaultdict(list)
    for name, log_s in seen:
        families[name].append(log_s)
    # The error of predicting each member from those before it, which includes changes over time.
    errors = [
        (log_s - fmean(before)) ** 2 * n / (n + 1)
        for members in families.values()
        for n, log_s in enumerate(members)
        if n and (before := members[max(0, n - KEEP_OF_FAMILY) : n])
    ]
    within = min(_towards(errors, (1.0 - FAMILY_PART) * variance), variance)
    return _Families({name: members[-KEEP_OF_FAMILY:] for name, members in families.items()}, within)


def _towards(values: Sequence[float], prior: float) -> float:
    return (sum(values) + PRIOR_JOBS * prior) / (len(values) + PRIOR_JOBS)
