"""Job views as columns of numbers, one array per attribute, so that thousands of jobs are weighed at once.

`policy.Swell` keeps a `Reader`; `vectorised.Round` works on the `Columns` it returns. A view is read once, as long as
it is the same object (`plan.snapshotter` reuses views of jobs that nothing happened to). What was read is kept in one
table of numbers, not in objects by job: with ten thousand of those Python's garbage collector would cost more than the
rest. A `Reader` may hold nothing but this cache: a fresh one reads the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import chain, compress
from operator import attrgetter, is_not

import numpy as np
from numpy.typing import NDArray

from swell.core.ids import JobId
from swell.core.resources import GPU_MILLI, Node, gpus_per_node
from swell.core.snapshot import JobView, Snapshot
from swell.policy._envelope import NONE, Envelopes, Floats, Ints, chain_at
from swell.policy._gittins import lasting_rank_s
from swell.policy.swell.settings import LEAST_LEFT, LEVEL, MOST_URGENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where jobs stand, compared with having had an equal share of the cluster since they came."""

    age_s: Floats
    left_s: Floats  # at speed 1
    work_s: Floats  # the same of all that there is to do, with what is done
    share_speed: Floats

    def lateness(self) -> Floats:
        """Finish-time fairness if from now on each job had its equal share: 1 is as if it always had."""
        return np.asarray((self.age_s * self.share_speed + self.left_s) / self.work_s)

    def needed_speed(self, late: float, start_s: Floats, for_s: float) -> Floats:
        """The minimum speed over the horizon (or until its end) with which a job finishes within `late` times its time
        on an equal share, start included, given an equal share afterwards. 0: it needs no GPU within the horizon."""
        share = np.maximum(self.share_speed, 1e-9)
        due_s = late * (start_s + self.work_s / share) - self.age_s
        soon = self.left_s / np.maximum(due_s, 1.0)
        return np.maximum(np.where(due_s > for_s, (self.left_s - (due_s - for_s) * share) / for_s, soon), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Jobs down, in order of submission. Lists run over GPU types, in order of name."""

    types: tuple[str, ...]
    capacity: list[int]  # thousandths of a GPU
    sizes: list[Ints]  # vertices of the concave envelope
    speeds: list[Floats]
    usable: list[NDArray[np.bool_]]
    relative_value: list[float]  # of one GPU of this type, to the average job; 1 on average over the cluster
    gpus: float  # in the cluster
    gpu_speed: Floats  # of one GPU of the cluster, on average over the types the job may use
    left_1_s: Floats
    as_of_s: Floats
    rate: Floats
    length_median_1_s: Floats
    length_sigma: Floats
    done_1_s: Floats
    restart_s: Floats
    changed_s: Floats  # when what it holds last changed
    unsaved_since_s: Floats  # infinity: a stop costs the restart and no more
    unsaved_every_s: Floats
    weight: Floats
    milli: Ints
    held: Ints  # 0 also while it is stopping: nothing more is lost by another size
    held_kind: Ints
    held_speed: Floats
    deadline_s: Floats
    submitted_s: Floats
    waited_s: Floats  # before the current wait
    waiting_since_s: Floats  # infinity while it holds something
    attained_gpu_s: Floats
    held_gpus: Floats
    top_size: Ints
    top_speed: Floats

    def remaining_s(self, now_s: float) -> Floats:
        """At speed 1, as `measures.left_s`: of a job whose length is only known as a distribution its Gittins rank."""
        done = self.rate * np.maximum(0.0, now_s - self.as_of_s)
        left_s = np.maximum(np.maximum(np.abs(self.left_1_s - done), LEAST_LEFT * self.left_1_s), 1e-3)
        guessed = self.length_median_1_s.nonzero()[0]
        if len(guessed):
            done_s = self.done_1_s[guessed] + done[guessed]
            level_s = LEVEL * np.maximum(self.restart_s[guessed], 1.0)
            median_s, sigma = self.length_median_1_s[guessed], self.length_sigma[guessed]
            left_s[guessed] = lasting_rank_s(median_s, sigma, done_s, level_s)
        return left_s

    def stop_cost_s(self, now_s: float) -> Floats:
        """As `JobView.stop_cost_s`."""
        since_s, every_s = self.unsaved_since_s, self.unsaved_every_s
        if not (known := np.isfinite(since_s)).any():
            return self.restart_s
        left_s = since_s + every_s - now_s
        wait_s = np.where(left_s > 0.0, left_s, every_s)
        cost_s = np.where(every_s > 0.0, wait_s, np.maximum(now_s - since_s, 0.0))
        return np.where(known, self.restart_s + cost_s, self.restart_s)

    def standing(self, left_s: Floats, now_s: float) -> Standing:
        """Estimates the work done from the service attained, at the average size. An overdue job keeps its estimated
        total work, but is not assumed to have finished it."""
        age_s = np.maximum(now_s - self.submitted_s, 0.0)
        waited_s = self.waited_s + np.maximum(now_s - self.waiting_since_s, 0.0)
        ran_s = np.maximum(age_s - waited_s, 0.0)
        since_s = np.maximum(now_s - self.as_of_s, 0.0)
        service = self.attained_gpu_s + self.held_gpus * since_s
        gpus = np.divide(service, ran_s, out=np.zeros(len(ran_s)), where=ran_s > 0)
        share_speed, speed = self._speeds_on(gpus)
        overdue_s = np.maximum(self.rate * since_s - self.left_1_s, 0.0)
        overdue_s[self.length_median_1_s > 0] = 0.0  # nothing certain was expected of them
        work_s = np.maximum(ran_s * speed + left_s - 2 * overdue_s, LEAST_LEFT * self.left_1_s)
        return Standing(age_s=age_s, left_s=left_s, work_s=work_s, share_speed=share_speed)

    def _speeds_on(self, gpus: Floats) -> tuple[Floats, Floats]:
        """Two speeds per job: on an equal share of the type that suits it best, and on `gpus` of the type that it holds
        (of the average type while it holds none). Along the envelope; below the smallest size, in proportion."""
        jobs = len(gpus)
        on_share, on_gpus = np.zeros(jobs), gpus * self.gpu_speed
        both = np.empty((2, jobs))
        both[1] = gpus
        for kind, milli in enumerate(self.capacity):
            both[0] = milli / GPU_MILLI / jobs
            sizes, speeds = self.sizes[kind], self.speeds[kind]
            at = np.add.reduce(sizes < both[:, :, None], axis=2)
            here = chain_at(sizes, speeds, both, at)
            on_share = np.maximum(on_share, here[0])
            on_gpus = np.where(self.held_kind == kind, here[1], on_gpus)
        return on_share, on_gpus

    def urgency(self, left_s: Floats, now_s: float) -> Floats:
        """1 without a deadline or once it is missed; rises as the time left at full speed fills the time there is."""
        if not self.deadline_s.any():
            return np.ones(len(left_s))
        slack_s = self.deadline_s - now_s
        at_best_s = left_s / np.maximum(self.top_speed, 1e-9)
        hopeful = (self.deadline_s > 0) & (slack_s > at_best_s)
        tightness = np.divide(at_best_s, slack_s, out=np.zeros(len(left_s)), where=hopeful)
        return np.minimum(1.0 / np.maximum(1.0 - tightness, 1e-9), MOST_URGENT)


_PLAIN = {
    "left_1_s": "remaining_1_s",
    "as_of_s": "as_of_s",
    "rate": "rate_now",
    "length_median_1_s": "length_median_1_s",
    "length_sigma": "length_sigma",
    "done_1_s": "done_1_s",
    "restart_s": "restart_cost_s",
    "changed_s": "changed_s",
    "weight": "weight",
    "milli": "gpu_milli",
    "deadline_s": "deadline_s",
    "submitted_s": "submitted_s",
    "waited_s": "waited_s",
    "attained_gpu_s": "attained_gpu_s",
}
"""Columns that are an attribute of the view as it is."""
_MILLI = list(_PLAIN).index("milli")
_NUMBERS = (
    *_PLAIN,
    "top_size",
    "waiting_since_s",
    "held_gpus",
    "held",
    "held_kind",
    "held_speed",
    "unsaved_since_s",
    "unsaved_every_s",
)


class Reader:
    """Holds nothing but a cache: a fresh one reads the same."""

    def __init__(self) -> None:
        self._table = Envelopes()
        self._seen: dict[JobId, JobView] = {}
        self._slots: dict[JobId, int] = {}
        self._numbers: Floats = np.zeros((0, 0))  # slots across; down `_NUMBERS`, then the envelope's row by type
        self._nodes: tuple[Node, ...] = ()
        self._types: tuple[str, ...] = ()
        self._most: dict[str, int] = {}

    def read(self, jobs: list[JobView], snapshot: Snapshot) -> Columns | None:
        """None if there is no GPU at all."""
        types = tuple(t for t, milli in snapshot.capacity.gpu_milli.items() if milli > 0)
        if not types:
            return None
        self._refresh(types, snapshot)
        ids = list(map(_id, jobs))
        fresh = list(compress(jobs, map(is_not, map(self._seen.get, ids), jobs)))
        if fresh:
            self._write(fresh)
        slots = np.fromiter(map(self._slots.__getitem__, ids), np.int64, len(jobs))
        return self._columns(self._numbers.take(slots, axis=1), [snapshot.capacity.gpu_milli[t] for t in types])

    def _refresh(self, types: tuple[str, ...], snapshot: Snapshot) -> None:
        """Forget what was cached if the kinds of nodes changed, or the cache outgrew its use."""
        stale = types != self._types or len(self._table) > 4 * len(snapshot.jobs) + 4096
        if snapshot.nodes is not self._nodes:
            self._nodes = snapshot.nodes
            most = gpus_per_node(snapshot.nodes)
            stale = stale or most != self._most
            self._most = most
        if stale:
            self._table = Envelopes()
        if stale or len(self._seen) > 2 * len(snapshot.jobs) + 1000:
            self._types = types
            self._seen, self._slots = {}, {}
            self._numbers = np.zeros((len(_NUMBERS) + len(types), 0))

    def _write(self, fresh: list[JobView]) -> None:
        """Read these views into their slots; a job that is new gets one."""
        slots = self._slots
        at = np.array([slots.setdefault(job.id, len(slots)) for job in fresh])
        missing = len(slots) - self._numbers.shape[1]
        if missing > 0:
            self._numbers = np.pad(self._numbers, ((0, 0), (0, missing + len(slots) // 4)))
        table = _numbers(fresh, self._types)
        for line, gpu_type in enumerate(self._types, start=len(_NUMBERS)):
            table[line] = self._rows(fresh, gpu_type)
        self._numbers[:, at] = table
        self._seen.update(zip(map(_id, fresh), fresh, strict=True))

    def _rows(self, jobs: list[JobView], gpu_type: str) -> list[int]:
        row, most = self._table.row, self._most.get(gpu_type, 1)
        return [row(job.speed.curve(gpu_type), job.sizes, most) if gpu_type in job.gpu_types else NONE for job in jobs]

    def _columns(self, table: Floats, capacity: list[int]) -> Columns:
        at = dict(zip(_NUMBERS, table[: len(_NUMBERS)], strict=True))
        envelopes = [self._table.of(rows.astype(np.int64)) for rows in table[len(_NUMBERS) :]]
        usable = [sizes[:, 0] > 0 for sizes, _ in envelopes]
        per_gpu = [_per_gpu(*envelope, where) for envelope, where in zip(envelopes, usable, strict=True)]
        gpu_speed, value = _values(per_gpu, usable, capacity)
        return Columns(
            types=self._types,
            capacity=capacity,
            sizes=[sizes for sizes, _ in envelopes],
            speeds=[speeds for _, speeds in envelopes],
            usable=usable,
            relative_value=value,
            gpus=sum(capacity) / GPU_MILLI,
            gpu_speed=gpu_speed,
            left_1_s=at["left_1_s"],
            as_of_s=at["as_of_s"],
            rate=at["rate"],
            length_median_1_s=at["length_median_1_s"],
            length_sigma=at["length_sigma"],
            done_1_s=at["done_1_s"],
            restart_s=at["restart_s"],
            changed_s=at["changed_s"],
            unsaved_since_s=at["unsaved_since_s"],
            unsaved_every_s=at["unsaved_every_s"],
            weight=at["weight"],
            milli=at["milli"].astype(np.int64),
            held=at["held"].astype(np.int64),
            held_kind=at["held_kind"].astype(np.int64),
            held_speed=at["held_speed"],
            deadline_s=at["deadline_s"],
            top_size=at["top_size"].astype(np.int64),
            submitted_s=at["submitted_s"],
            waited_s=at["waited_s"],
            waiting_since_s=at["waiting_since_s"],
            attained_gpu_s=at["attained_gpu_s"],
            held_gpus=at["held_gpus"],
            top_speed=reduce(np.maximum, (speeds[:, -1] for _, speeds in envelopes)),
        )


_id = attrgetter("id")
_plain = attrgetter(*_PLAIN.values(), "held_n")


def _numbers(jobs: list[JobView], types: tuple[str, ...]) -> Floats:
    """As `_NUMBERS`, and below that as many empty lines as there are types."""
    width = len(_PLAIN) + 1
    flat = np.fromiter(chain.from_iterable(map(_plain, jobs)), np.float64, width * len(jobs)).reshape(-1, width)
    table = np.empty((len(_NUMBERS) + len(types), len(jobs)))
    table[: len(_PLAIN)] = flat[:, : len(_PLAIN)].T
    held_n = flat[:, len(_PLAIN)]
    derived = table[len(_PLAIN) :]
    derived[0] = [job.sizes[-1] for job in jobs]
    derived[1] = [np.inf if job.waiting_since_s is None else job.waiting_since_s for job in jobs]
    derived[2] = held_n * table[_MILLI] / GPU_MILLI
    derived[3:6] = _held(jobs, types)
    derived[6] = [np.inf if job.unsaved is None or job.stopping else job.unsaved.since_s for job in jobs]
    derived[7] = [0.0 if job.unsaved is None else job.unsaved.every_s for job in jobs]
    return table


def _held(jobs: list[JobView], types: tuple[str, ...]) -> tuple[list[float], list[float], list[float]]:
    """What each job holds, of which type, and its speed there; nothing while it is stopping."""
    held, kind, speed = [0.0] * len(jobs), [-1.0] * len(jobs), [0.0] * len(jobs)
    for index, job in enumerate(jobs):
        n = job.held_n
        if not n or job.stopping or job.allocation is None or n not in job.sizes:
            continue
        on = job.allocation.gpu_type
        if on in types:
            curve = (job.speed.curve(on) if on in job.gpu_types else ()) or (0.0,)
            held[index], kind[index], speed[index] = n, types.index(on), curve[min(n, len(curve) - 1)]
    return held, kind, speed


def _per_gpu(sizes: Ints, speeds: Floats, usable: NDArray[np.bool_]) -> Floats:
    """Speed of one GPU to each job."""
    return np.divide(speeds[:, 0], sizes[:, 0], out=np.zeros(len(sizes)), where=usable)


def _values(per_gpu: list[Floats], usable: list[NDArray[np.bool_]], capacity: list[int]) -> tuple[Floats, list[float]]:
    """Speed of one GPU to each job, over the types it may use; and how much a GPU of each type does for the average
    job, relative to the cluster's average GPU."""
    parts = [milli * where for where, milli in zip(usable, capacity, strict=True)]
    total = np.maximum(sum(parts), 1)
    gpu_speed = sum(speed * part for speed, part in zip(per_gpu, parts, strict=True)) / total
    gpu_speed = np.where(gpu_speed > 0, gpu_speed, 1.0)
    relative = [_mean((speed / gpu_speed)[speed > 0]) for speed in per_gpu]
    average = sum(value * milli for value, milli in zip(relative, capacity, strict=True)) / sum(capacity)
    return gpu_speed, [value / average if average > 0 else 1.0 for value in relative]


def _mean(numbers: Floats) -> float:
    return float(np.add.reduce(numbers)) / len(numbers) if len(numbers) else 0.0
