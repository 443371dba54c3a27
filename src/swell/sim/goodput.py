"""What an adaptive job itself knows: a model of its step time fitted to what it has seen, to choose its batch by."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from swell.sim.profiles import Application, Setting
from swell.speed.steps import Point, StepModel, fit


@dataclass(slots=True)
class Experience:
    """Measurements one job has made, by GPU type, and the models fitted to them. Survives its restarts."""

    seen: dict[str, dict[Point, tuple[float, float]]] = field(default_factory=dict)
    models: dict[str, StepModel] = field(default_factory=dict)

    def add(self, gpu_type: str, point: Point, times_s: tuple[float, float]) -> None:
        seen = self.seen.setdefault(gpu_type, {})
        if point not in seen:
            seen[point] = times_s
            self.models[gpu_type] = fit(seen)


def choose(
    app: Application, model: StepModel | None, nodes: int, gpus: int, gpu_type: str, gradients: tuple[float, float]
) -> Setting:
    """The setting of the largest goodput that the model and the last gradient statistics promise."""
    if model is None:
        batch = max(app.initial, app.times(gpu_type).min_local * gpus)
        return app.fixed(min(batch, app.largest), gpus, gpu_type)
    sqr, var = gradients
    settings = app.candidates(gpus, gpu_type)
    atomic, accumulate, scale = app.candidate_arrays(gpus, gpu_type)
    step_s = model.steps_s(model.network_s(nodes, gpus), atomic, accumulate)
    return settings[int(np.argmax((var + sqr) / ((var / scale + sqr) * step_s)))]
