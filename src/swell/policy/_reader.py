"""Job views as columns of numbers, one array an attribute, so that thousands of jobs are weighed at once.

A view is read once for as long as it is the same object (`plan.picture` reuses views of jobs nothing happened to).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np

from swell.core.ids import JobId
from swell.core.resources import GPU_MILLI, Node, gpus_per_node
from swell.core.snapshot import JobView, Snapshot
from swell.policy._envelope import NONE, Envelopes, Floats, Ints, chain_at

_URGENT = 10.0
"""The most a deadline can multiply a job's weight by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Jobs down, in order of submission. Lists run over GPU types, in order of name."""

    types: tuple[str, ...]
    capacity: list[int]  # thousandths of a GPU
    sizes: list[Ints]  # vertices of the concave envelope
    speeds: list[Floats]
    usable: list[list[bool]]
    relative_value: list[float]  # of one GPU of this type, to the average job; 1 on average over the cluster
    gpus: float  # in the cluster
    gpu_speed: Floats  # of one GPU of the cluster, on average over the types the job may use
    left_1_s: Floats
    as_of_s: Floats
    rate: Floats
    restart_s: Floats
    weight: Floats
    milli: Ints
    held: Ints  # 0 also while it is stopping: nothing more is lost by another size
    held_kind: Ints
    held_speed: Floats
    sigma: Floats  # 0 when the remaining time is known
    deadline_s: Floats
    submitted_s: Floats
    waited_s: Floats  # before the current wait
    waiting_since_s: Floats  # infinity while it holds something
    attained_gpu_s: Floats
    held_gpus: Floats
    top_size: Ints
    top_speed: Floats

    def remaining_s(self, now_s: float, optimism: float) -> Floats:
        """At speed 1; as `JobView.remaining_s`, for all at once."""
        done = self.rate * np.maximum(0.0, now_s - self.as_of_s)
        left = np.maximum(np.maximum(self.left_1_s - done, 0.02 * self.left_1_s), 1e-3)
        return np.asarray(left * np.exp(-optimism * self.sigma))

    def lateness(self, left_s: Floats, now_s: float) -> Floats:
        """Finish-time fairness if from now on each job had its equal share of the cluster: 1 is as if it always had.

        What is done is taken from the service attained: so long at the average size."""
        share_speed = self._speed_of_share()
        age_s = np.maximum(now_s - self.submitted_s, 0.0)
        waited_s = self.waited_s + np.maximum(now_s - self.waiting_since_s, 0.0)
        ran_s = np.maximum(age_s - waited_s, 0.0)
        service = self.attained_gpu_s + self.held_gpus * np.maximum(now_s - self.as_of_s, 0.0)
        gpus = np.divide(service, ran_s, out=np.zeros(len(ran_s)), where=ran_s > 0)
        done_s = ran_s * self._speed_at(gpus)
        return np.asarray((age_s * share_speed + left_s) / (done_s + left_s))

    def _speed_of_share(self) -> Floats:
        """On an equal share of the type where that is fastest."""
        jobs = len(self.weight)
        speeds = [
            self._speed_on(kind, np.full(jobs, milli / GPU_MILLI / jobs)) for kind, milli in enumerate(self.capacity)
        ]
        return np.asarray(np.max(speeds, axis=0))

    def _speed_at(self, gpus: Floats) -> Floats:
        """On so many GPUs of the type it holds; while it holds none, of the average one."""
        here = np.zeros(len(gpus))
        for kind in range(len(self.types)):
            here = np.where(self.held_kind == kind, self._speed_on(kind, gpus), here)
        return np.where(self.held_kind >= 0, here, gpus * self.gpu_speed)

    def _speed_on(self, kind: int, gpus: Floats) -> Floats:
        """Along the envelope; less than the smallest size counts in proportion."""
        sizes, speeds = self.sizes[kind], self.speeds[kind]
        at = (sizes < gpus[:, None]).sum(axis=1)
        return chain_at(sizes, speeds, gpus, at)

    def urgency(self, left_s: Floats, now_s: float) -> Floats:
        """1 without a deadline or once it is missed; rises as the time left at full speed fills the time there is."""
        slack_s = self.deadline_s - now_s
        at_best_s = left_s / np.maximum(self.top_speed, 1e-9)
        hopeful = (self.deadline_s > 0) & (slack_s > at_best_s)
        tightness = np.divide(at_best_s, slack_s, out=np.zeros(len(left_s)), where=hopeful)
        return np.minimum(1.0 / np.maximum(1.0 - tightness, 1e-9), _URGENT)


_Row = tuple[float, ...]
_FIELDS = 17


class Reader:
    """Holds nothing but a cache: a fresh one reads the same."""

    def __init__(self) -> None:
        self._table = Envelopes()
        self._rows: dict[JobId, tuple[JobView, _Row]] = {}
        self._nodes: tuple[Node, ...] = ()
        self._types: tuple[str, ...] = ()
        self._most: dict[str, int] = {}

    def read(self, jobs: list[JobView], snapshot: Snapshot) -> Columns | None:
        """None if there is no GPU at all."""
        types = tuple(t for t, milli in snapshot.capacity.gpu_milli.items() if milli > 0)
        if not types:
            return None
        self._refresh(types, snapshot)
        rows = self._read(jobs)
        width = _FIELDS + len(types)
        table = np.fromiter(chain.from_iterable(rows), np.float64, len(rows) * width).reshape(-1, width)
        return self._columns(table, [snapshot.capacity.gpu_milli[t] for t in types])

    def _refresh(self, types: tuple[str, ...], snapshot: Snapshot) -> None:
        """Forget what was cached if the kinds of nodes changed, or the cache outgrew its use."""
        stale = types != self._types or len(self._table) > 4 * len(snapshot.jobs) + 4096
        if snapshot.nodes is not self._nodes:
            self._nodes = snapshot.nodes
            most = gpus_per_node(snapshot.nodes)
            stale = stale or most != self._most
            self._most = most
        if stale:
            self._types = types
            self._table = Envelopes()
            self._rows = {}

    def _read(self, jobs: list[JobView]) -> list[_Row]:
        known = self._rows
        if len(known) > 2 * len(jobs) + 1000:
            known.clear()
        rows: list[_Row] = []
        for job in jobs:
            entry = known.get(job.id)
            if entry is None or entry[0] is not job:
                entry = known[job.id] = (job, self._row(job))
            rows.append(entry[1])
        return rows

    def _row(self, job: JobView) -> _Row:
        types = self._types
        curves = [job.curve(t) if t in job.gpu_types else () for t in types]
        on = job.allocation.gpu_type if job.allocation is not None and job.held_n and not job.stopping else None
        kind = types.index(on) if on in types and job.held_n in job.sizes else -1
        held = job.held_n if kind >= 0 else 0
        held_curve = curves[kind] or (0.0,)
        rows = [
            self._table.row(curve, job.sizes, self._most.get(t, 1)) if curve else NONE
            for t, curve in zip(types, curves, strict=True)
        ]
        return (
            job.remaining_1_s,
            job.as_of_s,
            job.rate_now,
            job.restart_cost_s,
            job.weight,
            job.gpu_milli,
            held,
            kind,
            held_curve[min(held, len(held_curve) - 1)] if held else 0.0,
            0.0 if job.remaining_known else job.remaining_sigma,
            job.deadline_s,
            job.max,
            job.submitted_s,
            job.waited_s,
            np.inf if job.waiting_since_s is None else job.waiting_since_s,
            job.attained_gpu_s,
            job.held_n * job.gpu_milli / GPU_MILLI,
            *rows,
        )

    def _columns(self, table: Floats, capacity: list[int]) -> Columns:
        envelopes = [self._table.of(table[:, _FIELDS + kind].astype(np.int64)) for kind in range(len(self._types))]
        gpu_speed, value = _values([sizes for sizes, _ in envelopes], [speeds for _, speeds in envelopes], capacity)
        return Columns(
            types=self._types,
            capacity=capacity,
            sizes=[sizes for sizes, _ in envelopes],
            speeds=[speeds for _, speeds in envelopes],
            usable=[(sizes[:, 0] > 0).tolist() for sizes, _ in envelopes],
            relative_value=value,
            gpus=sum(capacity) / GPU_MILLI,
            gpu_speed=gpu_speed,
            left_1_s=table[:, 0],
            as_of_s=table[:, 1],
            rate=table[:, 2],
            restart_s=table[:, 3],
            weight=table[:, 4],
            milli=table[:, 5].astype(np.int64),
            held=table[:, 6].astype(np.int64),
            held_kind=table[:, 7].astype(np.int64),
            held_speed=table[:, 8],
            sigma=table[:, 9],
            deadline_s=table[:, 10],
            top_size=table[:, 11].astype(np.int64),
            submitted_s=table[:, 12],
            waited_s=table[:, 13],
            waiting_since_s=table[:, 14],
            attained_gpu_s=table[:, 15],
            held_gpus=table[:, 16],
            top_speed=np.max([speeds[:, -1] for _, speeds in envelopes], axis=0),
        )


def _values(sizes: list[Ints], speeds: list[Floats], capacity: list[int]) -> tuple[Floats, list[float]]:
    """Speed of one GPU to each job, over the types it may use; and how much a GPU of each type does for the average
    job, relative to the cluster's average GPU."""
    per_gpu = [
        np.divide(y[:, 0], n[:, 0], out=np.zeros(len(n)), where=n[:, 0] > 0) for n, y in zip(sizes, speeds, strict=True)
    ]
    usable = [milli * (n[:, 0] > 0) for n, milli in zip(sizes, capacity, strict=True)]
    total = np.maximum(sum(usable), 1)
    gpu_speed = sum(speed * part for speed, part in zip(per_gpu, usable, strict=True)) / total
    gpu_speed = np.where(gpu_speed > 0, gpu_speed, 1.0)
    relative = [float((speed / gpu_speed)[speed > 0].mean()) if (speed > 0).any() else 0.0 for speed in per_gpu]
    average = sum(value * milli for value, milli in zip(relative, capacity, strict=True)) / sum(capacity)
    return gpu_speed, [value / average if average > 0 else 1.0 for value in relative]
