"""Measured profiles in the format of the Pollux and Sia projects: step times by placement, gradients by epoch.

An `Application` answers what is true of one kind of job: how long an optimizer step takes on a placement, how much
progress a step of a batch size makes in each epoch, and so how fast it trains. Everything is cached.
"""

from __future__ import annotations

import bisect
import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from swell.core.errors import SwellError
from swell.sim.cluster import DEFAULT_TYPE

Floats = np.ndarray[Any, np.dtype[np.float64]]
Shape = tuple[int, ...]
"""GPUs on each node of a placement, canonical: the smallest rotation."""

EPOCHS: Mapping[str, int] = {"bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50}
MAX_LOCAL: Mapping[str, int] = {"yolov3": 8}
PRODUCTS: Mapping[str, str] = {"aws": "T4", "rtx": "2080Ti", "dgx-ext": "A100"}
"""Sia names GPUs by the machines they were in. A daemon reads the product name from the driver; these are the same."""
MAX_NODES_MEASURED = 16
CANDIDATES = 50
"""Batch sizes that an adaptive job considers, spaced evenly on a logarithmic scale."""
EPS = 1e-8

Counts = tuple[int, int]
"""(nodes, GPUs)"""
Measured = dict[int, list[tuple[float, float]]]
"""By local batch: (step, sync) of each measurement."""
Line = tuple[list[int], list[float], list[float]]
"""Local batches in order, with their step and sync times."""


class Setting(NamedTuple):
    """How a job splits its batch: `atomic` samples per GPU and micro-step, `accumulate` extra micro-steps."""

    atomic: int
    accumulate: int

    def total(self, gpus: int) -> int:
        return gpus * self.atomic * (self.accumulate + 1)


@cache
def canonical(shape: Shape) -> Shape:
    return min(shape[i:] + shape[:i] for i in range(len(shape)))


def packed(gpus: int, per_node: int) -> Shape:
    """This number of GPUs on as few nodes as possible."""
    full, rest = divmod(gpus, per_node)
    return canonical((per_node,) * full + ((rest,) if rest else ()))


def spread_over(gpus: int, nodes: int) -> Shape:
    """GPUs per node when they are spread over the nodes as evenly as possible."""
    nodes = max(1, min(nodes, gpus))
    each, rest = divmod(gpus, nodes)
    return canonical((each,) * (nodes - rest) + (each + 1,) * rest)


class StepTimes:
    """Measured step and synchronisation times of one application on one GPU type.

    A placement that was measured is interpolated linearly in the local batch; any other first in the local batch at
    each measured (nodes, GPUs), then linearly between those."""

    def __init__(self, placements: Path, max_local: int | None) -> None:
        rows = _rows(placements)
        self._by_shape = _group(rows)
        scalability = placements.with_name(placements.name.replace("placements", "scalability"))
        self._by_counts = _by_counts(rows, _rows(scalability))
        self._corners: dict[Counts, list[tuple[Counts, float]]] = {}
        self._cache: dict[tuple[Shape, int], tuple[float, float]] = {}
        largest = int(max(line[0][-1] for line in self._by_shape.values()))
        self.max_local = min(largest, max_local or largest)
        self.min_local = int(min(line[0][0] for line in self._by_shape.values()))

    def at(self, shape: Shape, local: int) -> tuple[float, float]:
        """(step time, of which synchronisation) in seconds."""
        key = (shape, local)
        found = self._cache.get(key)
        if found is None:
            line = self._by_shape.get(canonical(shape))
            found = _on_line(line, local) if line is not None else self._between(shape, local)
            self._cache[key] = found
        return found

    def _between(self, shape: Shape, local: int) -> tuple[float, float]:
        weights = self._weights(min(len(shape), MAX_NODES_MEASURED), sum(shape))
        times = [(weight, _on_line(self._by_counts[counts], local)) for counts, weight in weights]
        return sum(w * step for w, (step, _) in times), sum(w * sync for w, (_, sync) in times)

    def _weights(self, nodes: int, gpus: int) -> list[tuple[Counts, float]]:
        """Measured (nodes, GPUs) around a point, and how much each counts: linear in GPUs at the node counts below and
        above, at the same number of GPUs per node, then linear between the two."""
        found = self._corners.get((nodes, gpus))
        if found is None:
            measured = sorted({n for n, _ in self._by_counts})
            each = gpus / nodes
            found = [
                ((n, g), part * share)
                for n, part in around(measured, nodes)
                for g, share in around([g for m, g in self._by_counts if m == n], each * n)
            ]
            self._corners[nodes, gpus] = found
        return found


def around(measured: Sequence[int], x: float) -> list[tuple[int, float]]:
    """The measured values next to x and how much each counts; the outermost one alone beyond it."""
    i = bisect.bisect_left(measured, x)
    if i == 0 or i == len(measured) or measured[i] == x:
        return [(measured[min(i, len(measured) - 1)], 1.0)]
    low, high = measured[i - 1], measured[i]
    t = (x - low) / (high - low)
    return [(low, 1 - t), (high, t)]


class Application:
    """All that was measured of one kind of job, on every GPU type there is a file for."""

    def __init__(self, directory: Path) -> None:
        self.name = directory.name
        self.types = _types(directory)
        self._times: dict[str, StepTimes] = {}
        self._validation = _validation(directory)
        self.batches = tuple(sorted(self._validation))
        self.initial, self.largest = self.batches[0], self.batches[-1]
        shortest = min(len(rows["progress"]) for rows in self._validation.values())
        self.epochs = min(EPOCHS.get(self.name, shortest), shortest)
        ends = np.min([rows["progress"][: self.epochs] for rows in self._validation.values()], axis=0)
        self.epoch_ends: list[float] = [0.0, *ends.tolist()]
        self.work: Floats = np.diff(np.array(self.epoch_ends))
        self.works: list[float] = self.work.tolist()
        self._gains: dict[int, Floats] = {}
        self._rates: dict[tuple[str, Shape, Setting], list[float]] = {}

    def times(self, gpu_type: str) -> StepTimes:
        times = self._times.get(gpu_type)
        if times is None:
            path = self.types.get(gpu_type)
            if path is None:
                there = ", ".join(self.types)
                raise SwellError(f"there are no measurements of {self.name} on {gpu_type!r}; there are: {there}")
            times = self._times[gpu_type] = StepTimes(path, MAX_LOCAL.get(self.name))
        return times

    def max_gpus(self, batch: int, gpu_types: Iterable[str]) -> int:
        """No GPU gets less than the smallest measured local batch. `batch` 0: adaptive."""
        if self.name == "ncf":
            return 1  # never profiled beyond what one GPU trains best with
        smallest = min(self.times(gpu_type).min_local for gpu_type in gpu_types if gpu_type in self.types)
        return max(1, (batch or self.largest) // smallest)

    @cache  # noqa: B019 - applications live as long as the process
    def fixed(self, batch: int, gpus: int, gpu_type: str) -> Setting:
        """How a batch of a given size is split over this number of GPUs."""
        local = math.ceil(batch / gpus - EPS)
        accumulate = math.ceil(local / self.times(gpu_type).max_local - EPS) - 1
        if gpus == 1 and batch > self.initial:
            accumulate = max(1, accumulate)
        atomic = math.ceil(local / (accumulate + 1) - EPS)
        return Setting(min(atomic, self.largest // (gpus * (accumulate + 1))), accumulate)

    def first(self, gpus: int, gpu_type: str) -> Setting:
        """Of an adaptive job that has never been on such GPUs: its user's batch, as far as it fits."""
        return self.fixed(min(max(self.initial, self.times(gpu_type).min_local * gpus), self.largest), gpus, gpu_type)

    @cache  # noqa: B019 - as above
    def candidates(self, gpus: int, gpu_type: str) -> tuple[Setting, ...]:
        """Settings that an adaptive job chooses from on this number of GPUs."""
        times = self.times(gpu_type)
        smallest = max(self.initial, times.min_local * gpus)
        if smallest >= self.largest:
            return (self.fixed(self.largest, gpus, gpu_type),)
        batches = np.geomspace(smallest, self.largest, CANDIDATES)
        settings = (self._split(batch, gpus, times) for batch in batches)
        valid = [s for s in settings if times.min_local <= s.atomic <= times.max_local]
        return tuple(dict.fromkeys(s for s in valid if self.initial <= s.total(gpus) <= self.largest)) or (
            self.fixed(smallest, gpus, gpu_type),
        )

    @cache  # noqa: B019 - as above
    def candidate_arrays(self, gpus: int, gpu_type: str) -> tuple[Floats, Floats, Floats]:
        """The same as arrays: atomic, accumulate, total batch over the initial one."""
        settings = self.candidates(gpus, gpu_type)
        atomic = np.array([s.atomic for s in settings], dtype=float)
        accumulate = np.array([s.accumulate for s in settings], dtype=float)
        return atomic, accumulate, gpus * atomic * (accumulate + 1) / self.initial

    def _split(self, batch: float, gpus: int, times: StepTimes) -> Setting:
        local = batch / gpus
        accumulate = math.ceil(local / times.max_local - EPS) - 1
        if gpus == 1 and local > self.initial + EPS:
            accumulate = max(1, accumulate)
        return Setting(math.ceil(local / (accumulate + 1) - EPS), accumulate)

    def gradients(self, batch: int, epoch: int) -> tuple[float, float]:
        """(squared norm, variance) of the gradient in this epoch, linear between measured batch sizes."""
        sqr, var = self._all_gradients(batch)
        return sqr[epoch], var[epoch]

    @cache  # noqa: B019 - as above
    def _all_gradients(self, batch: int) -> tuple[list[float], list[float]]:
        """By epoch."""
        below, above, t = self._between(batch)
        low, high = self._validation[below], self._validation[above]
        sqr = (1 - t) * low["grad_sqr"] + t * high["grad_sqr"]
        var = (1 - t) * low["grad_var"] + t * high["grad_var"]
        return sqr[: self.epochs].tolist(), var[: self.epochs].tolist()

    def gains(self, batch: int) -> Floats:
        """Progress that one step makes in each epoch, in steps of the initial batch size."""
        found = self._gains.get(batch)
        if found is None:
            sqr, var = map(np.array, self._all_gradients(batch))
            found = self._gains[batch] = (var + sqr) / (var * self.initial / batch + sqr)
        return found

    def _between(self, batch: int) -> tuple[int, int, float]:
        batch = min(max(batch, self.initial), self.largest)
        below = max(b for b in self.batches if b <= batch)
        above = min(b for b in self.batches if b >= batch)
        return below, above, (batch - below) / (above - below) if above > below else 0.0

    def step_s(self, gpu_type: str, shape: Shape, setting: Setting) -> float:
        """Time of one optimizer step."""
        step, sync = self.times(gpu_type).at(shape, setting.atomic)
        return step + setting.accumulate * (step - sync)

    def rates(self, gpu_type: str, shape: Shape, setting: Setting) -> list[float]:
        """Progress a second, by epoch."""
        key = (gpu_type, shape, setting)
        found = self._rates.get(key)
        if found is None:
            gains = self.gains(setting.total(sum(shape)))
            found = self._rates[key] = (gains / self.step_s(gpu_type, shape, setting)).tolist()
        return found

    def best_rates(self, gpu_type: str, shape: Shape, batch: int) -> Floats:
        """Progress a second by epoch with a fixed batch size, or with the best one in each epoch (batch 0)."""
        gpus = sum(shape)
        if batch:
            return np.array(self.rates(gpu_type, shape, self.fixed(batch, gpus, gpu_type)))
        options = self.candidates(gpus, gpu_type)
        best: Floats = np.max([self.rates(gpu_type, shape, setting) for setting in options], axis=0)
        return best


@lru_cache(maxsize=8)
def applications(directory: Path) -> Mapping[str, Application]:
    """All applications under a directory of profiles, by name."""
    found = sorted(path for path in directory.iterdir() if any(path.glob("validation-*.csv")))
    if not found:
        raise SwellError(f"{directory} holds no profiles: expected a directory an application, with validation-*.csv")
    return {path.name: Application(path) for path in found}


def product(gpu_type: str) -> str:
    return PRODUCTS.get(gpu_type, gpu_type)


def _types(directory: Path) -> dict[str, Path]:
    """Files of step times by GPU type; a plain placements.csv is of the default type."""
    files = sorted(directory.glob("placements*.csv"))
    return {product(path.stem.partition("-")[2]) or DEFAULT_TYPE: path for path in files}


def _validation(directory: Path) -> dict[int, dict[str, Floats]]:
    found: dict[int, dict[str, Floats]] = {}
    for path in sorted(directory.glob("validation-*.csv")):
        rows = _rows(path)
        columns = ("progress", "grad_sqr", "grad_var")
        found[int(path.stem.partition("-")[2])] = {c: np.array([float(r[c]) for r in rows]) for c in columns}
    return found


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _group(rows: list[dict[str, str]]) -> dict[Shape, Line]:
    points: dict[Shape, Measured] = {}
    for row in rows:
        shape = canonical(tuple(int(digit) for digit in row["placement"]))
        _add(points.setdefault(shape, {}), row)
    return {shape: _line(measured) for shape, measured in points.items()}


def _by_counts(placements: list[dict[str, str]], scalability: list[dict[str, str]]) -> dict[Counts, Line]:
    """All measurements by (nodes, GPUs); placements of equal counts are averaged."""
    points: dict[Counts, Measured] = {}
    for row in placements:
        digits = [int(digit) for digit in row["placement"]]
        _add(points.setdefault((len(digits), sum(digits)), {}), row)
    for row in scalability:
        counts = int(float(row["num_nodes"])), int(float(row["num_replicas"]))
        _add(points.setdefault(counts, {}), row)
    return {counts: _line(points[counts]) for counts in sorted(points)}


def _add(measured: Measured, row: dict[str, str]) -> None:
    measured.setdefault(int(float(row["local_bsz"])), []).append((float(row["step_time"]), float(row["sync_time"])))


def _line(measured: Measured) -> Line:
    sizes = sorted(measured)
    means = [np.mean(measured[size], axis=0).tolist() for size in sizes]
    return sizes, [mean[0] for mean in means], [mean[1] for mean in means]


def _on_line(line: Line, local: int) -> tuple[float, float]:
    """Linear between measured local batches, and on beyond the largest."""
    sizes, steps, syncs = line
    if len(sizes) == 1:
        return steps[0], syncs[0]
    i = min(max(bisect.bisect_right(sizes, local), 1), len(sizes) - 1)
    t = (local - sizes[i - 1]) / (sizes[i] - sizes[i - 1])
    t = max(t, 0.0)
    return steps[i - 1] + t * (steps[i] - steps[i - 1]), max(0.0, syncs[i - 1] + t * (syncs[i] - syncs[i - 1]))
