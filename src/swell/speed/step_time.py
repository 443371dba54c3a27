"""The time of one optimizer step by its GPUs, nodes and batch split, fitted to measured steps.

The form is that of Pollux (OSDI'21): computing takes α + β·local batch, the network a constant plus a part per GPU
(with different constants on one node and between nodes), and a step the γ-norm of both. Fitted in closed form: β and α
by least squares, the network from the time of a step beyond computing, γ on a small grid. Costs that were never
measured are assumed to be zero, so that policies try such sizes and measure them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

GAMMAS = (1.0, 1.25, 1.6, 2.0, 3.0, 5.0, 10.0)
GAMMA_PENALTY = 1e-5
"""Prefers a smaller γ if the measurements do not decide."""
_GAMMA = np.array(GAMMAS)[:, None]
_INVERSE = 1.0 / _GAMMA
_PENALTY = GAMMA_PENALTY * (_GAMMA[:, 0] - 1.0) ** 2
BETWEEN_NODES = 1.1
"""A network between nodes without measurements is assumed to be slower than the one inside a node by this factor."""

Point = tuple[int, int, int]
"""(nodes, GPUs, local batch)"""
Seen = Mapping[Point, tuple[float, float]]
"""Measured times: (step without accumulation, of which synchronisation) in seconds."""
Line = tuple[float, float]
"""(constant, slope)"""

NO_NETWORK: Line = (0.0, 0.0)
LEAST_S = 1e-9
"""Lower bound of the computing time."""

Ratios = tuple[tuple[float, float], ...]
"""(logarithm of GPUs, logarithm of measured divided by fitted), in order of GPUs."""
NOTHING_MEASURED: tuple[Ratios, Ratios] = ((), ())
FARTHEST = 3.0
"""Maximum factor by which a network is assumed to be faster or slower than its line."""

STRANGE = 1.5
"""A computing time that differs from the expected one by this factor is an outlier, or of another model."""


@dataclass(frozen=True, slots=True)
class StepModel:
    alpha: float
    beta: float
    inside: Line  # (constant, per GPU beyond two) on one node
    between: Line  # the same between nodes
    gamma: float
    measured: tuple[Ratios, Ratios] = NOTHING_MEASURED  # for the networks on one node and between nodes

    def network_s(self, nodes: int, gpus: int) -> float:
        if gpus <= 1:
            return 0.0
        constant, each = self.between if nodes > 1 else self.inside
        ratios = self.measured[nodes > 1]
        ratio = _between(ratios, math.log(gpus)) if ratios else 1.0
        return (constant + each * max(0, gpus - 2)) * ratio

    def compute_s(self, local: float) -> float:
        return self.alpha + self.beta * local

    def step_s(self, nodes: int, gpus: int, local: float, accumulate: float = 0.0) -> float:
        compute = self.compute_s(local)
        network = self.network_s(nodes, gpus)
        whole = float((compute**self.gamma + network**self.gamma) ** (1 / self.gamma))
        return whole + accumulate * compute

    def steps_s(self, network_s: Floats | float, local: Floats, accumulate: Floats) -> Floats:
        """`step_s` of many settings at once."""
        compute = self.alpha + self.beta * local
        whole = (compute**self.gamma + network_s**self.gamma) ** (1 / self.gamma)
        return np.asarray(whole + accumulate * compute)

    def computes(self, local: float, compute_s: float) -> bool:
        """Whether this computing time is plausible for the local batch."""
        return 1.0 / STRANGE < compute_s / self.compute_s(local) < STRANGE

    def slower(self, factor: float) -> StepModel:
        """The same model with `factor` times the computing time, on the same network."""
        return StepModel(self.alpha * factor, self.beta * factor, self.inside, self.between, self.gamma, self.measured)


def fit(seen: Seen) -> StepModel:
    alpha, beta = _line([local for _, _, local in seen], [step - sync for step, sync in seen.values()])
    inside = [point for point in seen if point[1] > 1 and point[0] == 1]
    between = [point for point in seen if point[1] > 1 and point[0] > 1]
    shared, here = inside + between, len(inside)
    if not shared:
        return StepModel(alpha, beta, NO_NETWORK, NO_NETWORK, GAMMAS[0])
    steps = np.array([seen[point][0] for point in shared])
    powers = np.array([max(alpha + beta * local, LEAST_S) for _, _, local in shared]) ** _GAMMA
    rests = np.maximum(steps**_GAMMA - powers, 0.0) ** _INVERSE
    in_lines = _networks([gpus - 2 for _, gpus, _ in inside], rests[:, :here])
    out_lines = _networks([gpus - 2 for _, gpus, _ in between], rests[:, here:])
    if not between:
        out_lines = [(constant * BETWEEN_NODES, each * BETWEEN_NODES) for constant, each in in_lines]
    beyond = np.array([gpus - 2.0 for _, gpus, _ in shared])
    lines = np.array([in_lines, out_lines])[:, :, :, None]
    networks = np.concatenate(
        [lines[0, :, 0] + lines[0, :, 1] * beyond[:here], lines[1, :, 0] + lines[1, :, 1] * beyond[here:]], axis=1
    )
    fitted = (powers + networks**_GAMMA) ** _INVERSE
    best = int(((np.log(fitted / steps) ** 2).sum(axis=1) + _PENALTY).argmin())
    return StepModel(alpha, beta, in_lines[best], out_lines[best], GAMMAS[best])


def fit_closely(seen: Seen) -> StepModel:
    """As `fit`, then corrected to the measured time at each number of GPUs, because real networks are not linear (two
    nodes may be slower than four). Between these sizes the correction is interpolated, beyond them it is constant.
    Steps with outliers of the computing time are left out."""
    model = fit(seen)
    trusted = {point: times for point, times in seen.items() if model.computes(point[2], times[0] - times[1])}
    if len(seen) / 2 <= len(trusted) < len(seen):
        model = fit(trusted)
    rests: tuple[dict[int, list[float]], dict[int, list[float]]] = ({}, {})
    for (nodes, gpus, _), rest in zip(trusted, _beyond_computing(model, trusted), strict=True):
        rests[nodes > 1].setdefault(gpus, []).append(rest)
    return replace(model, measured=(_ratios(model, 1, rests[False]), _ratios(model, 2, rests[True])))


def _beyond_computing(model: StepModel, seen: Seen) -> list[float]:
    """The network time of each step."""
    steps = np.array([step for step, _ in seen.values()])
    compute = model.alpha + model.beta * np.array([local for _, _, local in seen])
    rests: list[float] = (np.maximum(steps**model.gamma - compute**model.gamma, 0.0) ** (1 / model.gamma)).tolist()
    return rests


def _ratios(model: StepModel, nodes: int, by_gpus: Mapping[int, list[float]]) -> Ratios:
    found: list[tuple[float, float]] = []
    for gpus, rests in sorted(by_gpus.items()):
        expected = model.network_s(nodes, gpus)
        if expected > 0.0:
            near = [math.log(min(max(rest / expected, 1.0 / FARTHEST), FARTHEST)) for rest in rests]
            found.append((math.log(gpus), median(near)))
    return tuple(found)


def _between(points: Ratios, x: float) -> float:
    """Interpolates linearly between points, in logarithms; constant beyond them."""
    last = points[0]
    if x <= last[0]:
        return math.exp(last[1])
    for point in points[1:]:
        if x <= point[0]:
            part = (x - last[0]) / (point[0] - last[0])
            return math.exp(last[1] + part * (point[1] - last[1]))
        last = point
    return math.exp(last[1])


def _line(x: list[int], y: list[float]) -> Line:
    """Constant and slope, neither negative, by least squares of the relative error; equal parts if all x are equal."""
    if min(x) == max(x):
        half = sum(y) / len(y) / 2
        return half, half / x[0]
    constant, slope = _least_squares(x, y, [1 / v**2 for v in y])
    if constant < 0:
        return 0.0, sum(v / u for u, v in zip(x, y, strict=True)) / len(x)
    if slope < 0:
        return sum(y) / len(y), 0.0
    return constant, slope


def _least_squares(x: list[int], y: list[float], weights: list[float]) -> Line:
    total = sum(weights)
    mean_x = sum(w * u for w, u in zip(weights, x, strict=True)) / total
    mean_y = sum(w * v for w, v in zip(weights, y, strict=True)) / total
    across = sum(w * (u - mean_x) ** 2 for w, u in zip(weights, x, strict=True))
    slope = sum(w * (u - mean_x) * (v - mean_y) for w, u, v in zip(weights, x, y, strict=True)) / across
    return mean_y - slope * mean_x, slope


def _networks(x: list[int], seconds: Floats) -> list[Line]:
    """(constant, slope) of each row of network times over the GPUs beyond two, neither negative."""
    if not x:
        return [NO_NETWORK] * len(seconds)
    mean_x = sum(x) / len(x)
    across = sum((v - mean_x) ** 2 for v in x) or 1.0  # if all are equal, the slope will be 0
    squares = sum(v * v for v in x) or 1.0
    sums = np.array([[1 / len(x), (v - mean_x) / across, v / squares] for v in x])
    found: list[Line] = []
    for mean_y, slope, from_zero in (seconds @ sums).tolist():
        constant = mean_y - slope * mean_x
        if slope <= 0.0:
            found.append((mean_y, 0.0))
        else:
            found.append((constant, slope) if constant >= 0.0 else (0.0, from_zero))
    return found
