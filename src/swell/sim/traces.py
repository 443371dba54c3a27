"""Readers of cluster traces as CSV (plain or .xz): Philly, Helios and Alibaba style, distinguished by their columns.

Each virtual cluster of a trace is a workload of its own, since its users share no GPUs with others. A trace does not
say how many GPUs a virtual cluster had: `cluster_for` gives it what its jobs used 95 % of the time, had each started
when it was submitted, in whole nodes, and at least room for its largest job.
"""

from __future__ import annotations

import csv
import io
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TextIO

from swell.core.errors import SwellError
from swell.core.job import GpuRequest, JobSpec, Launcher
from swell.sim.workload import Arrival, Workload

GPUS_PER_NODE = 8
DEMAND = 0.95
MIN_DURATION_S = 1.0

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Columns:
    """Where a style of trace says what. `started` and `ended` where there is no duration."""

    submitted: str
    gpus: str
    duration: str = ""
    started: str = ""
    ended: str = ""
    cluster: str = ""
    user: str = ""
    gpu_unit: float = 1.0  # of the column: 0.01 for percent of a GPU
    instances: str = ""


STYLES: Mapping[str, Columns] = {
    "philly": Columns(submitted="timestamp", gpus="num_gpus", duration="duration", cluster="cluster", user="user"),
    "helios": Columns(submitted="submit_time", gpus="gpu_num", duration="duration", cluster="vc", user="user"),
    "alibaba": Columns(
        submitted="start_time",
        gpus="plan_gpu",
        started="start_time",
        ended="end_time",
        cluster="group",
        user="user",
        gpu_unit=0.01,
        instances="inst_num",
    ),
}


def read_trace(path: Path, style: str, *, elastic: float = 0.0) -> list[Workload]:
    """Workloads of a trace, one a virtual cluster, largest first; times start with the first job.

    `elastic` 0: each job has exactly the GPUs it asked for; 2: from one to twice as many."""
    columns = STYLES[style]
    parts: dict[str, list[Arrival]] = {}
    for row in _rows(path, columns):
        arrival = _arrival(row, columns, elastic)
        if arrival is not None:
            parts.setdefault(row.get(columns.cluster, "") or "all", []).append(arrival)
    first_s = min((a.at_s for arrivals in parts.values() for a in arrivals), default=0.0)
    ordered = sorted(parts.items(), key=lambda part: (-len(part[1]), part[0]))
    return [_workload(name, arrivals, first_s) for name, arrivals in ordered]


def _workload(name: str, arrivals: list[Arrival], first_s: float) -> Workload:
    moved = (Arrival(at_s=a.at_s - first_s, spec=a.spec, truth=a.truth) for a in arrivals)
    return Workload(name=name, arrivals=tuple(moved)).sorted()


def _rows(path: Path, columns: Columns) -> Iterator[Row]:
    with _open(path) as file:
        reader = csv.DictReader(file)
        missing = {columns.submitted, columns.gpus} - set(reader.fieldnames or ())
        if missing:
            styles = ", ".join(STYLES)
            raise SwellError(f"{path} lacks the columns {', '.join(sorted(missing))}; formats of traces are: {styles}")
        yield from reader


def _open(path: Path) -> TextIO:
    if path.suffix == ".xz":
        return io.TextIOWrapper(lzma.LZMAFile(path), encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def first_line(path: Path) -> str:
    with _open(path) as file:
        return file.readline()


def _arrival(row: Row, columns: Columns, elastic: float) -> Arrival | None:
    """None for rows without a time or a duration: jobs that never ran."""
    submitted_s, duration_s = _time_s(row[columns.submitted]), _duration_s(row, columns)
    gpus = _gpus(row, columns)
    if submitted_s is None or duration_s is None or gpus is None:
        return None
    spec = _spec(row.get(columns.user, "") or row.get(columns.cluster, ""), gpus, elastic)
    return Arrival(at_s=submitted_s, spec=spec, truth={"duration_s": duration_s})


@lru_cache(maxsize=1 << 14)
def _spec(user: str, gpus: int, elastic: float) -> JobSpec:
    """Frozen, so jobs of which the same is known share one."""
    most = max(gpus, int(gpus * elastic))
    least = 1 if elastic and gpus else gpus
    return JobSpec(
        name="job",
        command=("train",),
        user=user,
        gpus=GpuRequest(min=least, max=most, start=gpus),
        launcher=Launcher.PER_GPU,
        family=f"{user}/{gpus}",
        uses_library=True,
    )


def _gpus(row: Row, columns: Columns) -> int | None:
    try:
        each = float(row[columns.gpus] or 0) * columns.gpu_unit
        count = float(row.get(columns.instances, "") or 1) if columns.instances else 1.0
    except ValueError:
        return None
    return -int(-each * count // 1)


def _duration_s(row: Row, columns: Columns) -> float | None:
    if columns.duration:
        text = row.get(columns.duration, "")
        return max(MIN_DURATION_S, float(text)) if text else None
    started_s, ended_s = _time_s(row[columns.started]), _time_s(row[columns.ended])
    if started_s is None or ended_s is None or ended_s < started_s:
        return None
    return max(MIN_DURATION_S, ended_s - started_s)


def _time_s(text: str) -> float | None:
    """Seconds, or a date and time (taken as UTC)."""
    if not text or text in ("None", "null"):
        return None
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def cluster_for(workload: Workload) -> str:
    """A cluster of a size that fits the workload, as `parse_cluster` reads it."""
    largest = max((a.spec.gpus.min for a in workload.arrivals), default=1)
    gpus = max(largest, _demand(workload), 1)
    return f"{-(-gpus // GPUS_PER_NODE)}x{GPUS_PER_NODE}"


def _demand(workload: Workload) -> int:
    """GPUs that would be in use, 95 % of the time no more than this, if every job started at once."""
    changes: list[tuple[float, int]] = []
    for arrival in workload.arrivals:
        gpus = arrival.spec.gpus.requested
        changes.append((arrival.at_s, gpus))
        changes.append((arrival.at_s + arrival.truth["duration_s"], -gpus))
    changes.sort()
    in_use: dict[int, float] = {}
    now = 0
    for (at_s, change), (next_s, _) in pairwise(changes):
        now += change
        in_use[now] = in_use.get(now, 0.0) + next_s - at_s
    limit, passed = DEMAND * sum(in_use.values()), 0.0
    for gpus, seconds in sorted(in_use.items()):
        passed += seconds
        if passed >= limit:
            return gpus
    return 0
