"""What an adaptive job itself has measured: a model of its step time, by which it chooses its batch.

`sim.training_world` keeps one per job. This is the job's own knowledge, not the scheduler's (`speed.adaptive`).
"""

from __future__ import annotations

from collections.abc import Mapping

from swell.sim.profiles import Application, Floats, Setting
from swell.speed.step_time import Point, StepModel, fit

Times = tuple[float, float]
"""(step, of which synchronisation) in seconds."""
Gradients = tuple[float, float]
"""(squared norm, variance)"""
NOTHING_SEEN: Mapping[Point, Times] = {}


class Experience:
    """Measurements that a job of one application has made, by GPU type, and the models fitted to them. Survives its
    restarts.

    Never changes: one more measurement makes another, which is the same for all jobs that have seen the same things in
    the same order. Most of a workload's jobs do so for long, and what they know is worked out once.
    """

    __slots__ = ("_chosen", "_models", "_next", "_seen", "_steps_s")

    def __init__(
        self, seen: Mapping[str, Mapping[Point, Times]] | None = None, models: Mapping[str, StepModel] | None = None
    ) -> None:
        self._seen = seen or {}
        self._models = models or {}
        self._next: dict[tuple[str, Point, Times], Experience] = {}
        self._steps_s: dict[tuple[str, int, int], Floats] = {}  # of each setting that may be chosen
        self._chosen: dict[tuple[str, int, int, Gradients], Setting] = {}

    def after(self, gpu_type: str, point: Point, times_s: Times) -> Experience:
        """With this measurement; the first one at each point counts."""
        seen = self._seen.get(gpu_type, NOTHING_SEEN)
        if point in seen:
            return self
        key = (gpu_type, point, times_s)
        found = self._next.get(key)
        if found is None:
            now = {**seen, point: times_s}
            found = Experience({**self._seen, gpu_type: now}, {**self._models, gpu_type: fit(now)})
            self._next[key] = found
        return found

    def steps_s(self, app: Application, nodes: int, gpus: int, gpu_type: str) -> Floats | None:
        """What a step of each setting that may be chosen there is expected to take. None: nothing is known."""
        key = (gpu_type, nodes, gpus)
        found = self._steps_s.get(key)
        model = self._models.get(gpu_type)
        if found is None and model is not None:
            atomic, accumulate, _ = app.candidate_arrays(gpus, gpu_type)
            found = self._steps_s[key] = model.steps_s(model.network_s(nodes, gpus), atomic, accumulate)
        return found

    def choose(self, app: Application, nodes: int, gpus: int, gpu_type: str, gradients: Gradients) -> Setting:
        """The setting of the largest goodput that this experience and the last gradient statistics promise."""
        key = (gpu_type, nodes, gpus, gradients)
        found = self._chosen.get(key)
        if found is None:
            found = self._chosen[key] = self._choice(app, nodes, gpus, gpu_type, gradients)
        return found

    def _choice(self, app: Application, nodes: int, gpus: int, gpu_type: str, gradients: Gradients) -> Setting:
        step_s = self.steps_s(app, nodes, gpus, gpu_type)
        if step_s is None:
            return app.first(gpus, gpu_type)
        sqr, var = gradients
        _, _, scale = app.candidate_arrays(gpus, gpu_type)
        # Goodput is (var + sqr) over this, which is the time of one step's worth of progress.
        return app.candidates(gpus, gpu_type)[int(((var / scale + sqr) * step_s).argmin())]
