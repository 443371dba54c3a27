"""Which samples come next: an order that does not depend on the number of processes, so that a resized training neither
skips nor repeats any.

Positions count samples over all passes through the data. A global batch is a slice of the order; each rank takes its
part of the slice. A training that stops at position p goes on there, whatever number of ranks it has then.
"""

from __future__ import annotations

import random
from typing import Callable, Dict, List, Tuple  # noqa: UP035  see settings.py

MAX_SHUFFLED = 50_000_000
"""An order of more samples is not kept in memory: shuffle shards of the data, and pass `shuffle=False`."""


def share_of(size: int, rank: int, world_size: int) -> slice:
    """The part of a batch of `size` samples that one rank takes; parts differ by one sample at most."""
    return slice(size * rank // world_size, size * (rank + 1) // world_size)


def split_batch(batch: int, devices: int, at_most: int) -> Tuple[int, int]:  # noqa: UP006
    """(samples per device, accumulation) so that `devices` devices together use exactly `batch` samples in each step,
    with at most `at_most` on a device at once. Refuses what cannot be divided: another batch is another training."""
    if batch < 1 or devices < 1 or at_most < 1:
        raise ValueError(f"batch, devices and at_most must be at least 1, not {batch}, {devices} and {at_most}")
    each, rest = divmod(batch, devices)
    if rest:
        raise ValueError(
            f"a global batch of {batch} cannot be divided over {devices} GPUs; allow only numbers of GPUs that divide "
            f"it in the job file (`gpus: {{sizes: [...]}}`), or choose another batch size"
        )
    local = next(size for size in range(min(each, at_most), 0, -1) if each % size == 0)
    return local, each // local


class Order:
    """The order of `samples` samples in global batches of `batch`. Where the batch does not divide the data set, the
    last two batches of a pass are smaller, and equal up to one sample: a lone rest could leave ranks without any."""

    def __init__(self, samples: int, batch: int, *, seed: int = 0, shuffle: bool = True) -> None:
        if samples < 1 or batch < 1:
            raise ValueError(f"samples and batch must be at least 1, not {samples} and {batch}")
        if shuffle and samples > MAX_SHUFFLED:
            raise ValueError(f"more than {MAX_SHUFFLED:,} samples are not shuffled in memory; use shuffle=False")
        self.samples, self.batch, self.seed, self.shuffle = samples, batch, seed, shuffle
        self._pass = -1
        self._order: List[int] = []  # noqa: UP006  Python 3.8

    def after(self, position: int) -> int:
        """The position after the batch that begins at `position`."""
        left = self.samples - position % self.samples
        if left >= 2 * self.batch:
            return position + self.batch
        return position + (left if left <= self.batch else -(-left // 2))

    def check(self, world_size: int) -> None:
        """Every rank has a sample of every batch of a pass, or ValueError: a rank without one cannot do its step, and
        the others would wait for it."""
        rest = self.samples % self.batch
        least = self.samples if self.samples < self.batch else (self.batch + rest) // 2 if rest else self.batch
        if least < world_size:
            raise ValueError(
                f"{self.samples} samples in batches of {self.batch} cannot be divided over {world_size} ranks: a batch "
                f"of {least} would leave some without a sample. Allow at most {least} GPUs in the job file, or choose "
                "a larger batch; one that divides the number of samples has no smaller batches at the end of a pass"
            )

    def indices(self, position: int, rank: int = 0, world_size: int = 1) -> List[int]:  # noqa: UP006
        """What this rank takes of the batch that begins at `position`."""
        number, offset = divmod(position, self.samples)
        size = self.after(position) - position
        part = share_of(size, rank, world_size)
        if not self.shuffle:
            return list(range(offset + part.start, offset + part.stop))
        if number != self._pass:
            self._pass = number
            self._order = list(range(self.samples))
            random.Random(f"{self.seed}/{number}").shuffle(self._order)  # noqa: S311  an order, not a secret
        return self._order[offset + part.start : offset + part.stop]


class Batches:
    """Batches of indices of one rank, from a position on: to iterate over, or a `batch_sampler` of torch's DataLoader.

    A loader may run ahead of training; where training is, `Training` knows by the steps it has done."""

    def __init__(self, order: Order, start: Callable[[], int], stop: Callable[[], int], rank: int, world_size: int):
        self.order, self.start, self.stop = order, start, stop
        self.rank, self.world_size = rank, world_size

    def __iter__(self) -> BatchIterator:
        self.order.check(self.world_size)
        return BatchIterator(self)

    def __len__(self) -> int:
        """Batches that are left of this pass (torch asks; a loop by steps has no end of its own)."""
        left = self.order.samples - self.start() % self.order.samples
        return -(-left // self.order.batch)


class BatchIterator:
    """One way through `Batches`. torchdata's StatefulDataLoader saves and restores its state: the position counts the
    samples of all ranks, so the state of one rank fits every rank of any number of them."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._position = self._stop = -1  # unset until the first batch is asked for: then where the training is

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> List[int]:  # noqa: UP006
        batches = self._batches
        if self._position < 0:
            self._position = batches.start()
            self._stop = batches.stop()
        if 0 <= self._stop <= self._position:
            raise StopIteration
        indices = batches.order.indices(self._position, batches.rank, batches.world_size)
        self._position = batches.order.after(self._position)
        return indices

    def state_dict(self) -> Dict[str, int]:  # noqa: UP006
        return {"position": self._batches.start() if self._position < 0 else self._position}

    def load_state_dict(self, state: Dict[str, int]) -> None:  # noqa: UP006
        self._position = state["position"]
        self._stop = self._batches.stop()
