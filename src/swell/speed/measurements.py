"""Measurements of one job: the last epochs on each configuration it ran on, and their medians.

`speed.book` keeps one per job and `speed.fitting` fits them. Bounded: old epochs and configurations are dropped.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from swell.core.events import EpochEnded

KEEP_EPOCHS = 9
KEEP_CONFIGURATIONS = 24
KEEP_RECENT = 3
SAME_BATCH = 0.25
"""Samples of batches that differ by less than this part count as equally useful (GPUs do not divide every number)."""
KEEP_LOSSES = 256
SHORTEST_S, LONGEST_S = 1e-6, 1e9
"""Epoch times outside come from wrong clocks."""
REFIT_COUNTS = (1, 2, 3, 5, 8, 13, 21, 34)
"""After these numbers of epochs on one configuration the model is fitted again; later, every sixteen."""


class Configuration(NamedTuple):
    """Where an epoch ran. A tuple for speed, because each report makes and looks up one."""

    gpu_type: str
    gpus: int
    nodes: int
    batch_size: int = 0


@dataclass(slots=True)
class Times:
    """The last times of a unit of work on one configuration."""

    last: list[float] = field(default_factory=list)
    typical_s: float = 0.0  # of those
    count: int = 0  # epochs that ended
    epochs_s: float = 0.0  # their total time
    epoch_s: float = 0.0  # the last one, or the estimate of the current one

    def add(self, unit_s: float, epoch_s: float, count: int) -> None:
        self.last.append(unit_s)
        if len(self.last) > KEEP_EPOCHS:
            del self.last[0]
        self.typical_s = median(self.last)
        self.count += count
        self.epochs_s += epoch_s * count
        self.epoch_s = epoch_s

    @property
    def mean_s(self) -> float:
        return self.epochs_s / self.count if self.count else self.epoch_s

    @property
    def weight(self) -> int:
        """The weight in epochs; the current one counts until the first has ended."""
        return max(1, self.count)

    @property
    def spread(self) -> float:
        """Relative deviation of one time from the typical one, robust (median absolute deviation)."""
        if len(self.last) < 3:
            return 0.2
        typical = self.typical_s
        return 1.48 * median(abs(t - typical) for t in self.last) / typical


@dataclass(slots=True)
class Measurements:
    """The reports of one job's epochs.

    Speeds are compared by the time per sample if the job reports it, because epochs may take longer at first than later
    (with samples of other batch sizes weighted by their usefulness); else by the time of an epoch. `recent` are the
    last epochs, unscaled.
    """

    times: dict[Configuration, Times] = field(default_factory=dict)
    reference_type: str = ""
    by_sample: bool = False
    batch_size: int = 0  # the first one, the reference for others
    efficiency: float = 1.0  # part of useful samples, as last measured with it
    recent: list[tuple[Configuration, float, int]] = field(default_factory=list)  # (where, epoch's time, its number)
    losses: list[tuple[int, float]] = field(default_factory=list)  # (epoch, loss)
    epochs: int = 0  # done, as last reported
    count: int = 0  # of epochs in `times`
    first_units: float = 0.0  # of work in an epoch, by the first report

    def add(self, event: EpochEnded) -> bool:
        """Learn from one report; True if the model should be fitted again."""
        self.epochs = max(self.epochs, event.epoch)
        self._add_loss(event)
        if not self.times:
            self.reference_type = event.gpu_type
            self.by_sample = event.samples_per_s > 0.0
            self.batch_size = event.batch_size
        unit_s, epoch_s = self._unit_s(event), event.epoch_s
        if not (SHORTEST_S <= epoch_s <= LONGEST_S and 0.0 < unit_s < LONGEST_S):
            return False
        key = Configuration(event.gpu_type, max(1, event.gpus), max(1, event.nodes), event.batch_size)
        times = self.times.pop(key, None) or Times()
        self.times[key] = times  # last in order: the most recent
        before = times.count
        times.add(unit_s, epoch_s, event.count)
        self.count += event.count
        self.recent = [*self.recent[1 - KEEP_RECENT :], (key, epoch_s, event.epoch if event.count else event.epoch + 1)]
        if not self.first_units:
            self.first_units = epoch_s / times.typical_s
        if len(self.times) > KEEP_CONFIGURATIONS:
            self.count -= self.times.pop(next(iter(self.times))).count
        now = times.count
        return not before or bisect(REFIT_COUNTS, before) != bisect(REFIT_COUNTS, now) or before // 16 != now // 16

    def recent_units(self) -> list[tuple[float, int]]:
        """(units of work, number) of the last epochs."""
        return [(s / self.times[key].typical_s, epoch) for key, s, epoch in self.recent if key in self.times]

    def epoch_1_s(self, unit_1_s: float) -> float:
        """The time of an epoch at speed 1, from the last ones; `unit_1_s` is the time of a unit there."""
        units = self.recent_units()
        return unit_1_s * median(found for found, _ in units) if units else 0.0

    def work_1_s(self, unit_1_s: float) -> float:
        """The time that the epochs so far would have taken at speed 1."""
        return sum(times.epochs_s * unit_1_s / times.typical_s for times in self.times.values())

    def _unit_s(self, event: EpochEnded) -> float:
        if not self.by_sample:
            return event.epoch_s
        rate = event.samples_per_s
        if not 1.0 / LONGEST_S < rate < 1.0 / SHORTEST_S**2:
            return 0.0
        useful = event.goodput / rate if event.goodput > 0.0 else 1.0
        if abs(event.batch_size - self.batch_size) <= SAME_BATCH * self.batch_size:
            self.efficiency = useful
        return self.efficiency / (rate * useful)

    def _add_loss(self, event: EpochEnded) -> None:
        loss = event.metrics.get("loss", event.metrics.get("train_loss"))
        if loss is not None and loss == loss and abs(loss) != float("inf"):
            self.losses.append((event.epoch, loss))
            if len(self.losses) > KEEP_LOSSES:
                self.losses = self.losses[::2]

    def latest(self) -> Iterator[tuple[Configuration, Times]]:
        """The times for each (type, GPUs, nodes), with the batch size used last."""
        seen: dict[tuple[str, int, int], None] = {}
        for key, times in reversed(self.times.items()):
            place = (key.gpu_type, key.gpus, key.nodes)
            if place not in seen:
                seen[place] = None
                yield key, times
