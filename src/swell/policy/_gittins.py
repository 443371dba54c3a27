"""The Gittins index of a job of unknown length: by which to order it among others.

A job whose length S is log-normal and of which a seconds are done is worth as much as one that certainly has

    rank(a) = min over d of  E[min(S - a, d) | S > a] / P(S - a <= d | S > a)

seconds left: what must be invested, up to some d, for each chance that it ends by then. Ordering by rank makes the mean
completion time least on one machine (Gittins 1979). Most jobs are short, so one that has just come ranks before its
median; the longer it has run without an end, the longer it is taken to be.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_Z = np.linspace(-6.0, 6.0, 97)
"""Of the table: log(done / median) / sigma."""
_FARTHEST = 4.0
"""Beyond, rank grows in proportion to what is done: so few jobs get there that the normal tail means nothing."""
_SIGMAS = np.linspace(0.05, 3.0, 60)
_REACH = np.exp(np.linspace(np.log(1e-3), np.log(1e3), 121))
"""d, over the median or over what is done, whichever is more."""


def _cdf(x: Floats) -> Floats:
    """Of the standard normal, by Abramowitz and Stegun 26.2.17 (error below 1e-7)."""
    t = 1.0 / (1.0 + 0.2316419 * np.abs(x))
    poly = t * (0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))))
    tail = np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi) * poly
    return np.asarray(np.where(x > 0, 1.0 - tail, tail))


def _line(sigma: float) -> Floats:
    """log of rank over max(median, done), along `_Z`; the median is 1."""
    z = np.minimum(_Z, _FARTHEST)[:, None]
    done = np.exp(sigma * z)
    reach = done + _REACH[None, :] * np.maximum(1.0, done)
    reach_z = np.log(reach) / sigma
    alive = 1.0 - _cdf(z)
    ends = (_cdf(reach_z) - _cdf(z)) / alive
    partial_mean = np.exp(sigma**2 / 2) * (_cdf(reach_z - sigma) - _cdf(z - sigma)) / alive
    invested = np.maximum(partial_mean + reach * (1.0 - ends) - done, 1e-9)
    ratio = np.divide(invested, ends, out=np.full(ends.shape, np.inf), where=ends > 1e-9)
    return np.asarray(np.log(ratio.min(axis=1) / np.maximum(1.0, done[:, 0])))


_TABLE = np.stack([_line(float(sigma)) for sigma in _SIGMAS])


def lasting_rank_s(
    median_s: Floats | float, sigma: Floats | float, done_s: Floats | float, level_s: Floats | float
) -> Floats:
    """As `rank_s`, but it rises only where what is done reaches `level_s`, twice, four times … that. Two jobs that are
    as far would else take turns, each time at the cost of a restart."""
    doublings = np.floor(np.log2(np.maximum(done_s / level_s, 0.5)))
    reached_s = np.where(doublings >= 0, level_s * np.exp2(doublings), 0.0)
    return np.minimum(rank_s(median_s, sigma, done_s), rank_s(median_s, sigma, reached_s))


def rank_s(median_s: Floats | float, sigma: Floats | float, done_s: Floats | float) -> Floats:
    """Of jobs with log-normal lengths, sigma above 0, from the table in proportion."""
    z = np.log(np.maximum(done_s, 1e-9) / median_s) / sigma
    column = np.clip((z - _Z[0]) / (_Z[1] - _Z[0]), 0.0, len(_Z) - 1.000001)
    row = np.clip((sigma - _SIGMAS[0]) / (_SIGMAS[1] - _SIGMAS[0]), 0.0, len(_SIGMAS) - 1.000001)
    r, c = np.floor(row).astype(np.int64), np.floor(column).astype(np.int64)
    right, down = column - c, row - r
    upper = _TABLE[r, c] * (1 - right) + _TABLE[r, c + 1] * right
    lower = _TABLE[r + 1, c] * (1 - right) + _TABLE[r + 1, c + 1] * right
    at_s = np.maximum(done_s, median_s * np.exp(sigma * _Z[0]))  # before that none ends: what is missing counts in full
    rank = np.exp(upper * (1 - down) + lower * down) * np.maximum(median_s, at_s)
    return np.asarray(rank + at_s - done_s)
