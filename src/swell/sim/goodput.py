"""What an adaptive job itself knows: a model of its step time fitted to what it has seen, to choose its batch size by.

The form is that of Pollux (OSDI'21): computing takes α + β·local batch, the network a constant plus a part per GPU
(other constants on one node than between nodes), and a step the γ-norm of both. Fitted in closed form: β and α by least
squares, the network from what a step takes beyond computing, γ on a small grid. What was never seen is assumed to be
for free, so that jobs try it: a fit becomes honest where the job has been.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from swell.sim.profiles import Application, Setting

GAMMAS = (1.0, 1.25, 1.6, 2.0, 3.0, 5.0, 10.0)
GAMMA_PENALTY = 1e-5
"""Prefers less overlap where the measurements do not tell."""
BETWEEN_NODES = 1.1
"""A network between nodes never seen is taken for this much slower than the one inside a node."""


@dataclass(frozen=True, slots=True)
class Model:
    alpha: float
    beta: float
    inside: tuple[float, float]  # (constant, per GPU beyond two) on one node
    between: tuple[float, float]  # the same between nodes
    gamma: float

    def network_s(self, nodes: int, gpus: int) -> float:
        if gpus <= 1:
            return 0.0
        constant, each = self.between if nodes > 1 else self.inside
        return constant + each * max(0, gpus - 2)

    def step_s(self, nodes: int, gpus: int, setting: Setting) -> float:
        compute = self.alpha + self.beta * setting.atomic
        network = self.network_s(nodes, gpus)
        whole = float((compute**self.gamma + network**self.gamma) ** (1 / self.gamma))
        return whole + setting.accumulate * compute


Point = tuple[int, int, int]
"""(nodes, GPUs, local batch)"""
Seen = dict[Point, tuple[float, float]]
"""What was measured there: (step, of which synchronisation) in seconds."""


@dataclass(slots=True)
class Experience:
    """Measurements one job has made, by GPU type, and the models fitted to them. Survives its restarts."""

    seen: dict[str, Seen] = field(default_factory=dict)
    models: dict[str, Model] = field(default_factory=dict)

    def add(self, gpu_type: str, point: Point, times_s: tuple[float, float]) -> None:
        seen = self.seen.setdefault(gpu_type, {})
        if point not in seen:
            seen[point] = times_s
            self.models[gpu_type] = fit(seen)


def fit(seen: Seen) -> Model:
    alpha, beta = _line([local for _, _, local in seen], [step - sync for step, sync in seen.values()])
    fits = [_with_gamma(seen, alpha, beta, gamma) for gamma in GAMMAS]
    return min(fits, key=lambda fitted: fitted[0])[1]


def _line(x: list[int], y: list[float]) -> tuple[float, float]:
    """Constant and slope, neither negative, by least squares of the relative error; half and half of a single x."""
    if min(x) == max(x):
        half = sum(y) / len(y) / 2
        return half, half / x[0]
    constant, slope = _least_squares(x, y, [1 / v**2 for v in y])
    if constant < 0:
        return 0.0, sum(v / u for u, v in zip(x, y, strict=True)) / len(x)
    if slope < 0:
        return sum(y) / len(y), 0.0
    return constant, slope


def _least_squares(x: list[int], y: list[float], weights: list[float]) -> tuple[float, float]:
    total = sum(weights)
    mean_x = sum(w * u for w, u in zip(weights, x, strict=True)) / total
    mean_y = sum(w * v for w, v in zip(weights, y, strict=True)) / total
    across = sum(w * (u - mean_x) ** 2 for w, u in zip(weights, x, strict=True))
    slope = sum(w * (u - mean_x) * (v - mean_y) for w, u, v in zip(weights, x, y, strict=True)) / across
    return mean_y - slope * mean_x, slope


def _with_gamma(seen: Seen, alpha: float, beta: float, gamma: float) -> tuple[float, Model]:
    """(error, model) for one degree of overlap between computing and the network."""
    inside: list[tuple[int, float]] = []
    between: list[tuple[int, float]] = []
    for (nodes, gpus, local), (step, _) in seen.items():
        if gpus > 1:
            rest = step**gamma - (alpha + beta * local) ** gamma
            network = max(rest, 0.0) ** (1 / gamma)
            (between if nodes > 1 else inside).append((gpus, network))
    inside_fit = _network(inside)
    between_fit = _network(between)
    if not between:
        between_fit = (inside_fit[0] * BETWEEN_NODES, inside_fit[1] * BETWEEN_NODES)
    model = Model(alpha, beta, inside_fit, between_fit, gamma)
    error = sum(
        math.log(model.step_s(nodes, gpus, Setting(local, 0)) / step) ** 2
        for (nodes, gpus, local), (step, _) in seen.items()
    )
    return error + GAMMA_PENALTY * (gamma - 1) ** 2, model


def _network(points: list[tuple[int, float]]) -> tuple[float, float]:
    if not points:
        return 0.0, 0.0
    x = [max(0, gpus - 2) for gpus, _ in points]
    y = [seconds for _, seconds in points]
    if min(x) == max(x):
        return sum(y) / len(y), 0.0
    constant, slope = _least_squares(x, y, [1.0] * len(x))
    if slope < 0:
        return sum(y) / len(y), 0.0
    if constant < 0:
        return 0.0, sum(u * v for u, v in zip(x, y, strict=True)) / sum(u * u for u in x)
    return constant, slope


def choose(
    app: Application, model: Model | None, nodes: int, gpus: int, gpu_type: str, gradients: tuple[float, float]
) -> Setting:
    """The setting of the largest goodput that the model and the last gradient statistics promise."""
    if model is None:
        batch = max(app.initial, app.times(gpu_type).min_local * gpus)
        return app.fixed(min(batch, app.largest), gpus, gpu_type)
    sqr, var = gradients
    settings = app.candidates(gpus, gpu_type)
    atomic, accumulate, scale = app.candidate_arrays(gpus, gpu_type)
    compute = model.alpha + model.beta * atomic
    network = model.network_s(nodes, gpus)
    step_s = (compute**model.gamma + network**model.gamma) ** (1 / model.gamma) + accumulate * compute
    return settings[int(np.argmax((var + sqr) / ((var / scale + sqr) * step_s)))]
