"""A speed book that knows the truth of a world of measured jobs: for clairvoyant runs, and to check learned books
against.

`sim.simulate` uses it with `--clairvoyant`. A rate is how many times shorter all that remains would take there than on
one GPU (of the job's first type), so that remaining time / rate is exactly the time left if nothing changes. A job that
adapts its batch begins with its user's batch on each type of GPU: it needs an epoch to measure a better one.

A curve, by which policies share out GPUs now, is of the part of training that the job is in, as the learned one is: a
job that adapts its batch scales far better when it is old (ADR 74).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from swell.core.events import Event
from swell.core.ids import JobId
from swell.core.snapshot import Curve
from swell.core.state import JobRecord
from swell.ports import Remaining
from swell.sim.profiles import Application, Floats, Shape, packed, spread_over
from swell.sim.training_world import Training
from swell.speed.adaptive import PHASES


class TrueSpeed:
    """True speeds of one kind of job from one epoch on, if it knows these types of GPU."""

    def __init__(self, table: Table, epoch: int, known: frozenset[str]) -> None:
        self._table = table
        self._epoch, self._known = epoch, known
        self._curves: dict[str, Curve] = {}

    def curve(self, gpu_type: str) -> Curve:
        found = self._curves.get(gpu_type)
        if found is None:
            found = self._curves[gpu_type] = self._table.curve(gpu_type, self._epoch)
        return found

    def rate(self, gpus: int, nodes: int, gpu_type: str) -> float:
        left = self._table.left_s(gpu_type, gpus, nodes, new=gpu_type not in self._known)[self._epoch]
        return self._table.reference_s(self._epoch) / left if left > 0 else 1.0


class Table:
    """For one application, batch size and largest size: the time left from each epoch on, by what it runs on."""

    def __init__(self, app: Application, batch: int, max_gpus: int, per_node: Mapping[str, int]) -> None:
        self._app, self._batch, self._max = app, batch, max_gpus
        self._per_node = {t: n for t, n in sorted(per_node.items()) if t in app.types}
        self._left: dict[tuple[str, int, int, bool], list[float]] = {}
        self._speeds: dict[tuple[int, frozenset[str]], TrueSpeed] = {}
        self._reference = next(iter(self._per_node))
        self._all_types = frozenset(self._per_node)  # a job with a fixed batch has nothing to learn of them

    def speed(self, epoch: int, known: frozenset[str]) -> TrueSpeed:
        key = (min(epoch, self._app.epochs - 1), self._all_types if self._batch else known)
        found = self._speeds.get(key)
        if found is None:
            found = self._speeds[key] = TrueSpeed(self, *key)
        return found

    def reference_s(self, epoch: int) -> float:
        return self.left_s(self._reference, 1, 1)[epoch]

    def left_s(self, gpu_type: str, gpus: int, nodes: int, *, new: bool = False) -> list[float]:
        """Time left at the start of each epoch on that, with 0 at the end. `new`: it is the first there."""
        key = (gpu_type, gpus, nodes, new)
        found = self._left.get(key)
        if found is None:
            found = self._left[key] = self._times_left(gpu_type, gpus, nodes, new=new)
        return found

    def _times_left(self, gpu_type: str, gpus: int, nodes: int, *, new: bool) -> list[float]:
        shape, app = self._shape(gpu_type, gpus, nodes), self._app
        times = app.work / app.best_rates(gpu_type, shape, self._batch)
        left: Floats = np.cumsum(times[::-1])[::-1]
        if new:
            first = app.work / np.array(app.rates(gpu_type, shape, app.first(gpus, gpu_type)))
            left = left + first - times
        return [*left.tolist(), 0.0]

    def _shape(self, gpu_type: str, gpus: int, nodes: int) -> Shape:
        per_node = self._per_node.get(gpu_type, gpus)
        return packed(gpus, per_node) if nodes == -(-gpus // per_node) else spread_over(gpus, nodes)

    def curve(self, gpu_type: str, epoch: int) -> Curve:
        """Over a phase of training from this epoch on; with a fixed batch over all that is left, which is the same."""
        if gpu_type not in self._per_node:
            return (0.0,) * (self._max + 1)
        per_node = self._per_node[gpu_type]
        phase = self._app.epochs if self._batch else max(1, round(self._app.epochs / PHASES))
        until = min(epoch + phase, self._app.epochs)
        phases_s = [self._from_to_s(gpu_type, n, -(-n // per_node), epoch, until) for n in range(1, self._max + 1)]
        speeds: Floats = self._from_to_s(self._reference, 1, 1, epoch, until) / np.maximum(phases_s, 1e-9)
        return (0.0, *np.maximum.accumulate(speeds).tolist())

    def _from_to_s(self, gpu_type: str, gpus: int, nodes: int, epoch: int, until: int) -> float:
        left_s = self.left_s(gpu_type, gpus, nodes)
        return left_s[epoch] - left_s[until]


class ClairvoyantBook:
    """The `SpeedBook` of clairvoyant runs."""

    follows_records = True  # the truth about a job changes only with what happens to it

    def __init__(self, world: Training, per_node: Mapping[str, int]) -> None:
        self._world = world
        self._per_node = per_node
        self._tables: dict[tuple[str, int, int], Table] = {}
        self._remaining: dict[JobId, tuple[JobRecord, Remaining]] = {}

    def learn(self, event: Event) -> None:
        """Nothing to learn: it knows."""

    def speed(self, job: JobRecord, gpus_per_node: Mapping[str, int]) -> TrueSpeed:
        trainee = self._world.trainees[job.id]
        return self._table(job).speed(trainee.epoch, trainee.known)

    def remaining(self, job: JobRecord) -> Remaining:
        cached = self._remaining.get(job.id)
        if cached is not None and cached[0] is job:
            return cached[1]
        remaining = self._truth(job)
        self._remaining[job.id] = (job, remaining)
        return remaining

    def alone(self, job: JobId) -> bool:
        """Measured jobs do not share GPUs."""
        return False

    def _truth(self, job: JobRecord) -> Remaining:
        trainee = self._world.trainees[job.id]
        table, app = self._table(job), trainee.app
        if trainee.done:
            return Remaining(at_speed_1_s=0.0, as_of_s=trainee.as_of_s, sigma=0.0, known=True)
        start, end = app.epoch_ends[trainee.epoch], app.epoch_ends[trainee.epoch + 1]
        part = (trainee.progress - start) / (end - start)
        now, then = table.reference_s(trainee.epoch), table.reference_s(trainee.epoch + 1)
        left = now + part * (then - now)
        return Remaining(at_speed_1_s=left / trainee.factor, as_of_s=trainee.as_of_s, sigma=0.0, known=True)

    def _table(self, job: JobRecord) -> Table:
        trainee = self._world.trainees[job.id]
        key = (trainee.app.name, trainee.batch, job.spec.gpus.max)
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = Table(trainee.app, trainee.batch, job.spec.gpus.max, self._per_node)
        return found
