"""One decision of the policy, for all jobs at once in numpy: the same steps as `reference`, and several GPU types.

`policy` makes a `Round`, calls `give` and `use_leftovers`, and reads `grants`; `reasons` later, if somebody asks. It
may not keep anything from one round to the next: that is what `columns.Reader` caches.

O(jobs × vertices × types): milliseconds for hundreds of jobs; for 10,000 see docs/figures/policies.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from swell.core.decision import Grant, Reason
from swell.core.ids import JobId
from swell.core.resources import GPU_MILLI
from swell.core.snapshot import JobView
from swell.policy._envelope import Floats, Ints, Number, with_held
from swell.policy.base import grant, speed_at
from swell.policy.swell.columns import Columns
from swell.policy.swell.market import Offers, Outcome, buy
from swell.policy.swell.reasons import of_running, of_waiting
from swell.policy.swell.settings import MOST_LATE, START, Settings
from swell.policy.swell.several_types import move_charge, promised, share_out


def median_lateness(lateness: Floats) -> float:
    """At least 1: where most jobs are late, those are helped that are later than most. To help all helps nobody, and
    restarts cost. A job that is alone is no measure of its own.

    (`np.median` takes ten times as long to find out what it was given.)"""
    if len(lateness) == 1:
        return 1.0
    ranked = np.sort(lateness)
    half = len(ranked) // 2
    return max(1.0, float(ranked[half] + ranked[-1 - half]) / 2)


class Round:
    """One decision. `n` and `kind` are what each job gets so far: how many GPUs, and the index of their type."""

    def __init__(self, jobs: list[JobView], columns: Columns, now_s: float, settings: Settings) -> None:
        self.jobs = jobs
        self.columns = columns
        self.settings = settings
        self.now_s = now_s
        self.left_s = columns.remaining_s(now_s)
        standing = columns.standing(self.left_s, now_s)
        lateness = standing.lateness()
        usual = median_lateness(lateness)
        late = np.minimum(np.maximum(lateness / (usual * settings.tolerance), 1.0), MOST_LATE) ** settings.fairness
        late[columns.length_median_1_s > 0] = 1.0  # nobody can say whether a job of unknown length is
        self.start_drag = np.where(columns.held > 0, 0.0, START * columns.restart_s / self.left_s)
        self.weight = np.maximum(columns.weight, 1e-6) * columns.urgency(self.left_s, now_s) * late
        self.worth = self._worth()
        self.stop_cost_s = columns.stop_cost_s(now_s)
        self.drag = settings.restart * self.stop_cost_s / self.left_s
        self.needed: Floats | None = None
        if len(columns.capacity) > 1:
            self.drag /= late
            self.needed = standing.needed_speed(settings.promise * usual, columns.restart_s, settings.horizon_s)
        lasts_s = np.maximum(settings.horizon_s, now_s - columns.changed_s)  # as long again as it has lasted
        unsaved_s = self.stop_cost_s - columns.restart_s
        self.stick = 1.0 + columns.restart_s / lasts_s + unsaved_s / settings.horizon_s
        self.n: Ints = np.zeros(len(jobs), dtype=np.int64)
        self.kind: Ints = np.full(len(jobs), -1, dtype=np.int64)
        self.left = list(columns.capacity)
        self.prices = np.zeros(len(columns.capacity))

    def _worth(self) -> Floats:
        """Of a second of progress at speed 1, to everybody: `reference._find_worth`, for all jobs."""
        columns, weight = self.columns, self.weight
        length = self.left_s / columns.gpu_speed / weight
        longest_first = length.argsort(kind="stable")[::-1]
        longer = np.empty(len(self.jobs))
        ordered = weight[longest_first]
        longer[longest_first] = ordered.cumsum() - ordered
        gpu_price = self.settings.price * (longer + self.settings.arrivals) / columns.gpus
        worth = np.full(len(self.jobs), np.inf)
        for kind in range(len(columns.capacity)):
            sizes, speeds = columns.sizes[kind], columns.speeds[kind]
            speeds = speeds / (1.0 + self.start_drag[:, None] * speeds)
            gpus = sizes * (columns.milli / GPU_MILLI)[:, None] * columns.relative_value[kind]
            cost = weight[:, None] + gpu_price[:, None] * gpus
            at_size = np.divide(cost, speeds, out=np.full(speeds.shape, np.inf), where=speeds > 0)
            worth = np.minimum(worth, np.minimum.reduce(at_size, axis=1))
        worth = np.where(np.isfinite(worth), worth, 0.0)
        efficiency = self.settings.efficiency
        if not efficiency:
            return worth
        progress = np.where(worth > 0.0, weight / columns.gpu_speed, 0.0)  # of one GPU: worth the same to all jobs
        return np.asarray(worth ** (1.0 - efficiency) * progress**efficiency)

    def give(self) -> None:
        """Sell GPUs in the sizes that pack into nodes."""
        offers, sizes = self._offers()
        sold = Outcome.of_one(buy(offers[0])) if len(offers) == 1 else share_out(offers)
        self.prices = sold.prices
        for kind, of_kind in enumerate(sizes):
            rows = (sold.kind == kind).nonzero()[0]
            self.n[rows] = of_kind[rows, sold.vertex[rows]]
        self.kind = sold.kind
        self.left = list(sold.left)

    def _offers(self) -> tuple[list[Offers], list[Ints]]:
        columns = self.columns
        drag = np.where(columns.held > 0, self.drag, self.start_drag)[:, None]
        offers: list[Offers] = []
        all_sizes: list[Ints] = []
        for kind, capacity in enumerate(columns.capacity):
            sizes, speeds = columns.sizes[kind], columns.speeds[kind]
            charge = move_charge(columns, kind, self.left_s, self.stop_cost_s, self.settings.horizon_s)[:, None]
            values = promised(speeds / (charge + charge * drag * speeds), self.needed)
            here = (columns.held_kind == kind).nonzero()[0]
            if len(here):
                sizes, values = self._with_held(sizes, values, here)
            all_sizes.append(sizes)
            costs = sizes * columns.milli[:, None]
            offered = values * self.worth[:, None]
            offers.append(Offers(costs, offered, capacity, lengths=self.left_s * self.worth, weights=self.weight))
        return offers, all_sizes

    def _with_held(self, sizes: Ints, values: Floats, here: Ints) -> tuple[Ints, Floats]:
        """The chains with what these jobs hold: no restart is taken off its value."""
        held = self.columns.held[here]
        needed = None if self.needed is None else self.needed[here]
        held_values = promised(self.columns.held_speed[here] * self.stick[here], needed)
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
        by_worth = (-self.worth).argsort(kind="stable").tolist()
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
                n, speed = self._fastest(index, kind, left // job.gpu_milli)
                if speed > best_speed:
                    best, best_speed = (n, kind), speed
        if best[0]:
            self.n[index], self.kind[index] = best
            self.left[best[1]] -= best[0] * job.gpu_milli

    def _stretch(self, index: int) -> None:
        """A job that got something takes more, if that is worth a restart it would not have had."""
        job, kind, n = self.jobs[index], int(self.kind[index]), int(self.n[index])
        more, speed = self._fastest(index, kind, n + self.left[kind] // job.gpu_milli)
        now = speed_at(job, n, self.columns.types[kind])
        if n == self.columns.held[index] and kind == self.columns.held_kind[index]:
            speed /= 1.0 + self.drag[index] * speed
            now *= self.stick[index]
        if more > n and speed > now:
            self.n[index] = more
            self.left[kind] -= (more - n) * job.gpu_milli

    def _fastest(self, index: int, kind: int, limit: int) -> tuple[int, float]:
        """The smallest allowed size that is as fast as any up to the limit, and its speed."""
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
        waiting = of_waiting(self.jobs, self.columns, self.kind, self.worth, self.left)
        given = (self.n, self.kind)
        return waiting | of_running(self.jobs, self.columns, given, self.worth, self.prices, self.left_s, self.now_s)


def _one_more(chains: NDArray[Number]) -> NDArray[Number]:
    """Room for one more vertex: until there is one, the last once more."""
    return np.concatenate([chains, chains[:, -1:]], axis=1)
