"""What was measured of one job, bounded: the last epochs on each configuration it ran on, and their medians."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

from swell.core.events import EpochEnded

KEEP_EPOCHS = 9
KEEP_CONFIGURATIONS = 24
KEEP_LOSSES = 256
SHORTEST_S, LONGEST_S = 1e-6, 1e9
"""Epochs outside are clocks gone wrong."""
REFIT_COUNTS = (1, 2, 3, 5, 8, 13, 21, 34)
"""After so many epochs on one configuration the model is fitted again; later, every sixteen."""


@dataclass(frozen=True, slots=True, order=True)
class Configuration:
    gpu_type: str
    gpus: int
    nodes: int
    batch_size: int = 0


@dataclass(slots=True)
class Times:
    """The last times of an epoch on one configuration."""

    last: list[float] = field(default_factory=list)
    count: int = 0

    def add(self, time_s: float, count: int) -> None:
        self.last.append(time_s)
        if len(self.last) > KEEP_EPOCHS:
            del self.last[0]
        self.count += count

    @property
    def typical_s(self) -> float:
        return median(self.last)

    @property
    def spread(self) -> float:
        """Relative deviation of one epoch from the typical one, robust (median absolute deviation)."""
        if len(self.last) < 3:
            return 0.2
        typical = self.typical_s
        return 1.48 * median(abs(t - typical) for t in self.last) / typical


@dataclass(slots=True)
class Evidence:
    """All that epochs of one job have said."""

    times: dict[Configuration, Times] = field(default_factory=dict)
    reference_type: str = ""
    losses: list[tuple[int, float]] = field(default_factory=list)  # (epoch, loss)
    epochs: int = 0  # done, as last reported

    def add(self, event: EpochEnded) -> bool:
        """Learn from one report; True if the model should be fitted again."""
        self.epochs = max(self.epochs, event.epoch)
        self._add_loss(event)
        time_s = useful_epoch_s(event)
        if time_s <= 0.0:
            return False
        if not self.times:
            self.reference_type = event.gpu_type
        key = Configuration(event.gpu_type, max(1, event.gpus), max(1, event.nodes), event.batch_size)
        times = self.times.pop(key, None) or Times()
        self.times[key] = times  # last in order: the most recent
        before = times.count
        times.add(time_s, max(1, event.count))
        if len(self.times) > KEEP_CONFIGURATIONS:
            del self.times[next(iter(self.times))]
        return any(before < c <= times.count for c in REFIT_COUNTS) or before // 16 != times.count // 16

    def _add_loss(self, event: EpochEnded) -> None:
        loss = event.metrics.get("loss", event.metrics.get("train_loss"))
        if loss is not None and loss == loss and abs(loss) != float("inf"):
            self.losses.append((event.epoch, loss))
            if len(self.losses) > KEEP_LOSSES:
                self.losses = self.losses[::2]

    def latest(self) -> Iterator[tuple[Configuration, Times]]:
        """One for each (type, GPUs, nodes): with the batch size used last."""
        seen: dict[tuple[str, int, int], None] = {}
        for key, times in reversed(self.times.items()):
            place = (key.gpu_type, key.gpus, key.nodes)
            if place not in seen:
                seen[place] = None
                yield key, times

    @property
    def count(self) -> int:
        return sum(times.count for times in self.times.values())


def useful_epoch_s(event: EpochEnded) -> float:
    """Time of one epoch's worth of progress: longer than the epoch when large batches learn less from each sample."""
    time_s = event.epoch_s
    if event.goodput > 0.0 and event.samples_per_s > 0.0:
        time_s *= event.samples_per_s / event.goodput
    return time_s if SHORTEST_S <= time_s <= LONGEST_S else 0.0
