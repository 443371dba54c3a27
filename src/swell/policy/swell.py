"""Swell, the default: least mean completion time without starving anybody. Ours; it generalises heSRPT (SIGMETRICS'20).

What is a second of progress worth? If a job is delayed by a second, it ends a second later, and so does everybody who
waits behind it. Let `a` jobs be longer than this one on a cluster of N GPUs: each GPU-second it uses delays them by a/N
seconds in all. On n GPUs it makes S(n) seconds of progress a second, so a second of progress costs

    w = min over n of (1 + price · a · n / N) / S(n)

With linear speedup that is proportional to the job's rank in remaining time (shortest first); where there are more GPUs
than anybody can use it is 1 / S(max), the job's own delay and nothing else. heSRPT is the case of equal power-law
curves. Then GPUs are given out so that Σ w · S(n) is greatest: see `_market` (on one type of GPU exact but for the last
step).

A size other than the held one is discounted by t / (t + c · restart cost), t being the time left at that size: near its
end a job is left alone; and by what the restart takes out of the time a size is expected to last: one, or three where
the type of GPU changes, since moves are soon taken back. Sizes that do not pack into nodes are for leftovers only
(`_envelope.useful_sizes`).

O(jobs × vertices × types), in numpy: milliseconds for hundreds of jobs; for 10,000 see docs/figures/policies.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swell.core.decision import Decision, Grant, Reason
from swell.core.ids import JobId
from swell.core.resources import GPU_MILLI
from swell.core.snapshot import JobView, Snapshot
from swell.policy import _why
from swell.policy import options as opts
from swell.policy._envelope import Floats, Ints, Number, with_held
from swell.policy._market import Offers, share_out
from swell.policy._reader import Columns, Reader
from swell.policy.base import Memory, apart, grant, speed_at
from swell.ports import Random

OPTIONS: opts.Options = {
    "price": opts.Option(
        default=3.0, low=0, high=1000, doc="of a GPU-second in lost seconds of longer jobs; above 1: more will arrive"
    ),
    "arrivals": opts.Option(
        default=1.0, low=0, high=1000, doc="jobs counted as waiting behind even the longest: those that will arrive"
    ),
    "restart": opts.Option(default=3.0, low=0, high=1000, doc="how many restarts a change of size is charged with"),
    "start": opts.Option(default=1.0, low=0, high=1000, doc="the same for the first start of a waiting job"),
    "horizon_s": opts.Option(
        default=600.0, low=1, high=1e9, doc="how long a size is expected to last: a change must pay its restart in that"
    ),
    "tolerance": opts.Option(
        default=1.2, low=1, high=1000, doc="lateness up to which nobody is helped, over that of the median job (or 1)"
    ),
    "fairness": opts.Option(
        default=4.0, low=0, high=20, doc="power of its lateness beyond that by which a late job weighs more"
    ),
    "promise": opts.Option(
        default=1.5,
        low=1,
        high=1000,
        doc="finish-time fairness, over the median job's (or 1): speed to end within it counts more on several types",
    ),
    "optimism": opts.Option(
        default=0.0, low=0, high=10, doc="standard deviations by which an unmeasured length is taken to be shorter"
    ),
}
"""How the defaults were chosen is in docs/explanation/the-swell-policy.md: one value for all workloads."""


_THERE_AND_BACK = 2.0
"""Restarts that a move to another type of GPU costs beyond the one of a change of size: who leaves a type for a short
job's sake goes back when that has ended, and so does whom the move pushed aside on the other type."""
_PROMISED = 2.0
"""What the speed that a job needs to end within `promise` is worth beyond what it is worth anyhow."""
_LATEST = 4.0
"""Lateness beyond this makes no further difference: the starvation guard is for that."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The options as numbers."""

    price: float
    arrivals: float
    restart: float
    start: float
    horizon_s: float
    tolerance: float
    fairness: float
    promise: float
    optimism: float


def settings_of(snapshot: Snapshot) -> Settings:
    return Settings(*(opts.number(snapshot, OPTIONS, name) for name in Settings.__slots__))


class Swell:
    name = "swell"
    elastic = True
    weighs_restarts = True
    OPTIONS = OPTIONS

    def __init__(self) -> None:
        self._reader = Reader()

    def decide(self, snapshot: Snapshot, memory: Memory, rng: Random) -> Decision:
        grants, jobs = apart(snapshot)
        for_all = _enough_for_all(jobs, snapshot)
        if for_all is not None:
            return Decision(grants=grants | for_all, memory=memory)
        columns = self._reader.read(jobs, snapshot) if jobs else None
        if columns is None:  # nothing is left to share out, which the layers tell everybody
            return Decision(grants=grants, memory=memory)
        this = Round(jobs, columns, snapshot.now_s, settings_of(snapshot))
        this.give()
        this.use_leftovers()
        return Decision(grants=grants | this.grants(), explain=this.reasons, memory=memory)


def _enough_for_all(jobs: list[JobView], snapshot: Snapshot) -> dict[JobId, Grant] | None:
    """The only size each job wants, where there is room for all of them on the one type there is; else None. Nothing is
    to be weighed then, and most hours of a cluster of jobs that do not scale are like that."""
    capacity = snapshot.capacity.gpu_milli
    if len(capacity) != 1:
        return None
    gpu_type, left = next(iter(capacity.items()))
    for job in jobs:
        n = job.sizes[-1]
        left -= n * job.gpu_milli
        settled = len(job.sizes) == 1 or (job.held_n == n and not job.stopping)
        if left < 0 or not settled or gpu_type not in job.gpu_types:
            return None
    return {job.id: grant(job.sizes[-1], gpu_type) for job in jobs if speed_at(job, job.sizes[-1], gpu_type) > 0.0}


def _one_more(chains: NDArray[Number]) -> NDArray[Number]:
    """Room for one more vertex: until there is one, the last once more."""
    return np.concatenate([chains, chains[:, -1:]], axis=1)


def _usual(lateness: Floats) -> float:
    """That of the median job, at least 1: where most are late, those are helped who are later than most. To help all
    helps nobody, and restarts cost. A job that is alone is no measure of its own.

    (`np.median` takes ten times as long to find out what it was given.)"""
    if len(lateness) == 1:
        return 1.0
    ranked = np.sort(lateness)
    half = len(ranked) // 2
    return max(1.0, float(ranked[half] + ranked[-1 - half]) / 2)


class Round:
    """One decision. `n` and `kind` are what each job gets so far."""

    def __init__(self, jobs: list[JobView], columns: Columns, now_s: float, settings: Settings) -> None:
        self.jobs = jobs
        self.columns = columns
        self.settings = settings
        self.left_s = columns.remaining_s(now_s, settings.optimism)
        standing = columns.standing(self.left_s, now_s)
        lateness = standing.lateness()
        usual = _usual(lateness)
        late = np.minimum(np.maximum(lateness / (usual * settings.tolerance), 1.0), _LATEST) ** settings.fairness
        self.weights = self._weights(now_s, late)
        self.drag = settings.restart * columns.restart_s / self.left_s
        self.needed: Floats | None = None
        if len(columns.capacity) > 1:  # one may have begun where it is slow
            self.drag /= late
            self.needed = standing.needed_speed(settings.promise * usual, columns.restart_s, settings.horizon_s)
        self.stick = 1.0 + columns.restart_s / settings.horizon_s
        self.n: Ints = np.zeros(len(jobs), dtype=np.int64)
        self.kind: Ints = np.full(len(jobs), -1, dtype=np.int64)
        self.left = list(columns.capacity)
        self.prices = np.zeros(len(columns.capacity))

    def _weights(self, now_s: float, late: Floats) -> Floats:
        """What a second of progress at speed 1 is worth to everybody: see the top of this file."""
        columns = self.columns
        weight = np.maximum(columns.weight, 1e-6) * columns.urgency(self.left_s, now_s) * late
        length = self.left_s / columns.gpu_speed / weight
        longest_first = length.argsort(kind="stable")[::-1]
        behind = np.empty(len(self.jobs))
        ordered = weight[longest_first]
        behind[longest_first] = ordered.cumsum() - ordered
        gpu_price = self.settings.price * (behind + self.settings.arrivals) / columns.gpus
        worth = np.full(len(self.jobs), np.inf)
        for kind in range(len(columns.capacity)):
            sizes, speeds = columns.sizes[kind], columns.speeds[kind]
            gpus = sizes * (columns.milli / GPU_MILLI)[:, None] * columns.relative_value[kind]
            cost = weight[:, None] + gpu_price[:, None] * gpus
            per_progress = np.divide(cost, speeds, out=np.full(speeds.shape, np.inf), where=speeds > 0)
            worth = np.minimum(worth, np.minimum.reduce(per_progress, axis=1))
        return np.where(np.isfinite(worth), worth, 0.0)

    def give(self) -> None:
        offers, sizes = self._offers()
        outcome = share_out(offers)
        self.prices = outcome.prices
        for kind, of_kind in enumerate(sizes):
            rows = (outcome.kind == kind).nonzero()[0]
            self.n[rows] = of_kind[rows, outcome.vertex[rows]]
        self.kind = outcome.kind
        self.left = list(outcome.left)

    def _offers(self) -> tuple[list[Offers], list[Ints]]:
        columns = self.columns
        runs = columns.held > 0
        start_drag = self.settings.start * columns.restart_s / self.left_s
        drag = np.where(runs, self.drag, start_drag)[:, None]
        offers: list[Offers] = []
        all_sizes: list[Ints] = []
        for kind, capacity in enumerate(columns.capacity):
            sizes, speeds = columns.sizes[kind], columns.speeds[kind]
            charge = self._move(kind)[:, None]
            values = self._promised(speeds / (charge + charge * drag * speeds))
            here = (columns.held_kind == kind).nonzero()[0]
            if len(here):
                sizes, values = self._with_held(sizes, values, here)
            all_sizes.append(sizes)
            costs = sizes * columns.milli[:, None]
            offers.append(Offers(costs=costs, values=values * self.weights[:, None], capacity=capacity))
        return offers, all_sizes

    def _move(self, kind: int) -> Floats:
        """What a running job's values on a type that it does not hold are divided by. Who will have ended by then is
        not moved back."""
        columns, horizon_s = self.columns, self.settings.horizon_s
        away = (columns.held > 0) & (columns.held_kind != kind)
        stays_s = np.minimum(self.left_s / np.maximum(columns.speeds[kind][:, -1], 1e-9), horizon_s)
        return np.where(away, 1.0 + _THERE_AND_BACK * columns.restart_s * stays_s / horizon_s**2, 1.0)

    def _promised(self, values: Floats, rows: Ints | slice = slice(None)) -> Floats:
        """What speeds are worth to these jobs: up to the one they need more than beyond. What is concave stays so."""
        if self.needed is None:
            return values
        return np.asarray(values + _PROMISED * np.minimum(values.T, self.needed[rows]).T)

    def _with_held(self, sizes: Ints, values: Floats, here: Ints) -> tuple[Ints, Floats]:
        held = self.columns.held[here]
        held_values = self._promised(self.columns.held_speed[here] * self.stick[here], here)
        all_sizes, all_values = _one_more(sizes), _one_more(values)
        fixed = (sizes[here, 0] == held) & (self.columns.top_size[here] == held)  # no other size is any use to them
        rows = here[fixed]
        all_values[rows] = np.maximum(values[rows, :1], held_values[fixed, None])
        rows, free = here[~fixed], ~fixed
        if len(rows):
            all_sizes[rows], all_values[rows] = with_held(sizes[rows], values[rows], held[free], held_values[free])
        return all_sizes, all_values

    def use_leftovers(self) -> None:
        """What no preferred size fitted into: any allowed size, to those that wait first, then to those that grow."""
        if not any(self.left):
            return
        by_worth = (-self.weights).argsort(kind="stable").tolist()
        for index in by_worth:
            if not any(self.left):
                return
            if self.kind[index] < 0:
                self._squeeze_in(index)
        room = self.columns.top_size > self.n
        for index in by_worth:
            if room[index] and self.kind[index] >= 0 and self.left[self.kind[index]]:
                self._stretch(index)

    def _squeeze_in(self, index: int) -> None:
        """A job that got nothing takes the fastest choice that fits into what is left."""
        best, best_speed = (0, -1), 0.0
        job = self.jobs[index]
        for kind, left in enumerate(self.left):
            if job.min * job.gpu_milli <= left and self.columns.usable[kind][index]:
                n, speed = self._largest(index, kind, left // job.gpu_milli)
                if speed > best_speed:
                    best, best_speed = (n, kind), speed
        if best[0]:
            self.n[index], self.kind[index] = best
            self.left[best[1]] -= best[0] * job.gpu_milli

    def _stretch(self, index: int) -> None:
        """A job that got something takes more, if that is worth a restart it would not have had."""
        job, kind, n = self.jobs[index], int(self.kind[index]), int(self.n[index])
        more, speed = self._largest(index, kind, n + self.left[kind] // job.gpu_milli)
        now = speed_at(job, n, self.columns.types[kind])
        if n == self.columns.held[index] and kind == self.columns.held_kind[index]:
            speed /= 1.0 + self.drag[index] * speed
            now *= self.stick[index]
        if more > n and speed > now:
            self.n[index] = more
            self.left[kind] -= (more - n) * job.gpu_milli

    def _largest(self, index: int, kind: int, limit: int) -> tuple[int, float]:
        """The smallest allowed size that is as fast as any up to the limit."""
        best, best_speed = 0, 0.0
        job, gpu_type = self.jobs[index], self.columns.types[kind]
        for n in job.sizes:
            if n > limit:
                break
            speed = speed_at(job, n, gpu_type)
            if speed > best_speed:
                best, best_speed = n, speed
        return best, best_speed

    def grants(self) -> dict[JobId, Grant]:
        jobs, types = self.jobs, self.columns.types
        rows = (self.kind >= 0).nonzero()[0]
        given = zip(rows.tolist(), self.n[rows].tolist(), self.kind[rows].tolist(), strict=True)
        return {jobs[row].id: grant(n, types[kind]) for row, n, kind in given}

    def reasons(self) -> dict[JobId, tuple[Reason, ...]]:
        waiting = _why.of_waiting(self.jobs, self.columns, self.kind, self.weights, self.left)
        given = (self.n, self.kind)
        return waiting | _why.of_running(self.jobs, self.columns, given, self.weights, self.prices, self.left_s)
