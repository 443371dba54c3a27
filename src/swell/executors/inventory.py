"""This machine as a `Node`: CPUs, memory, GPUs, and whether each GPU may be given away.

A GPU whose memory is not free although no run of ours holds it is DIRTY, and after a while QUARANTINED; it comes back
by itself when its memory is free. GPUs that others use are marked and left alone.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from swell.core.resources import Gpu, GpuHealth, Node
from swell.executors.nvml import GpuProcess, GpuReading, Nvml
from swell.executors.slots import slots
from swell.ports import Clock
from swell.shim import processes

LEFTOVER_MIB = 512
"""A free GPU may still show this much: the driver's own."""
QUARANTINE_S = 30.0
GRAIN_MIB = 256
"""Others' memory is told in steps of this, rounded up: a node is told again only when something really changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """What is ours: marks in the environments of processes, pids of their shims, and the GPUs that runs hold."""

    marks: frozenset[str] = frozenset()
    shims: frozenset[int] = frozenset()
    gpus: frozenset[int] = frozenset()


class Machine:
    """`gpus`: declare so many slots instead of asking the driver. Blocking; called from a thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        name: str = "",
        gpus: int | None = None,
        readings: Callable[[], tuple[GpuReading, ...]] | None = None,
        labels: dict[str, str] | None = None,
    ) -> None:
        self.name = name or socket.gethostname() or "localhost"
        self._clock = clock
        self._declared = gpus
        self._readings = readings or Nvml().read
        self._labels = labels or {}
        self._dirty_since: dict[int, float] = {}

    def declare(self, gpus: int | None) -> None:
        """From the next reading on: so many slots, or (None) the GPUs that the driver knows."""
        self._declared = gpus

    def read(self, ours: Ours) -> Node:
        return Node(
            name=self.name,
            gpus=self._gpus(ours),
            # Who declares slots wants so many jobs at once: a CPU for each, and the machine's own for jobs without one.
            cpus=cpus() + (self._declared or 0),
            memory_mib=memory_mib(),
            labels=self._labels,
            executor="local",
        )

    def gpu_clean(self, gpu: int, ours: Ours) -> bool:
        """May this GPU be given to the next run? True for declared slots: there is nothing to look at."""
        if self._declared is not None:
            return True
        return all(not _leftover(reading, ours) for reading in self._readings() if reading.index == gpu)

    def _gpus(self, ours: Ours) -> tuple[Gpu, ...]:
        if self._declared is not None:
            return slots(self._declared, ours.gpus)
        return tuple(self._gpu(reading, ours) for reading in self._readings())

    def _gpu(self, reading: GpuReading, ours: Ours) -> Gpu:
        health, why = self._health(reading, ours)
        others = [process for process in reading.processes if is_others(process, ours)]
        used_mib = sum(process.memory_mib or 0 for process in others)
        return Gpu(
            index=reading.index,
            type=reading.type,
            memory_mib=reading.total_mib,
            link_group=reading.link_group,
            health=health,
            why=why,
            others=bool(others),
            others_memory_mib=-(-used_mib // GRAIN_MIB) * GRAIN_MIB,
        )

    def _health(self, reading: GpuReading, ours: Ours) -> tuple[GpuHealth, str]:
        if reading.trouble:
            return GpuHealth.QUARANTINED, f"the driver cannot read it: {reading.trouble}; see `nvidia-smi` and dmesg"
        why = _leftover(reading, ours)
        if not why:
            self._dirty_since.pop(reading.index, None)
            return GpuHealth.OK, ""
        since_s = self._dirty_since.setdefault(reading.index, self._clock.monotonic_s())
        if self._clock.monotonic_s() - since_s < QUARANTINE_S:
            return GpuHealth.DIRTY, "its last run has ended, but its memory is not free yet"
        return GpuHealth.QUARANTINED, f"{why}; find the process or reset the GPU: it returns when its memory is free"


def _leftover(reading: GpuReading, ours: Ours) -> str:
    """Memory that nobody we can see holds; words for it, or nothing. Not asked while a run of ours is on the GPU:
    the driver may not show its processes (containers)."""
    living = [process for process in reading.processes if processes.alive([process.pid])]
    if reading.index in ours.gpus or any(process.memory_mib is None for process in living):
        return ""
    left_mib = reading.used_mib - sum(process.memory_mib or 0 for process in living)
    return f"about {left_mib // GRAIN_MIB * GRAIN_MIB} MiB are in use by no process" if left_mib > LEFTOVER_MIB else ""


def is_others(process: GpuProcess, ours: Ours) -> bool:
    """Alive, without a mark of ours, and below none of our shims."""
    if not processes.alive([process.pid]):
        return False
    if processes.mark_of(process.pid).decode("ascii", "replace") in ours.marks:
        return False
    pid = process.pid
    while pid > 1:
        if pid in ours.shims:
            return False
        stat = processes.stat_of(pid)
        pid = stat.parent if stat else 0
    return True


def cpus() -> int:
    return len(os.sched_getaffinity(0))


def memory_mib() -> int:
    """Of the machine, or of the cgroup we are in if that is less."""
    limits = [int(line.split()[1]) // 1024 for line in _lines("/proc/meminfo") if line.startswith("MemTotal:")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        limits += [int(line) // (1024 * 1024) for line in _lines(path) if line.strip().isdigit()]
    return min(limits, default=1024)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="ascii").splitlines()
    except OSError:
        return []
