"""Reads a machine's inventory as a `Node`: CPUs, memory, GPUs, and whether each GPU may be allocated.

A GPU whose memory is in use although no run of Swell holds it is DIRTY, and after `QUARANTINE_S` QUARANTINED; it
becomes OK when its memory is free. GPUs that others use are marked, and no run gets them.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from swell.core.idle import GpuUse
from swell.core.resources import Gpu, GpuHealth, Node
from swell.executors.nvml import GpuProcess, GpuReading, Nvml
from swell.executors.slots import slots
from swell.ports import Clock
from swell.shim import gpus, processes
from swell.shim.containers import why_none
from swell.shim.inventory import cpus, memory_mib

LEFTOVER_MIB = 512
"""On a free GPU the driver itself may use up to this much."""
QUARANTINE_S = 30.0
GRAIN_MIB = 256
"""Others' memory is rounded up to multiples of this, so that small changes cause no new report of the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """What belongs to Swell: marks in the environments of processes, pids of shims, and the GPUs that runs hold."""

    marks: frozenset[str] = frozenset()
    shims: frozenset[int] = frozenset()
    gpus: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Whose:
    """The mark in the environment of a process, and its ancestors."""

    mark: str = ""
    above: tuple[int, ...] = ()


def _whose_here(pid: int) -> Whose | None:
    if not processes.alive([pid]):
        return None
    found = gpus.whose(pid)
    return Whose(mark=found["mark"], above=tuple(found["above"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The functions that query a machine; by default the local one. `whose`: None if the process has ended."""

    executor: str = "local"
    cpus: Callable[[], int] = cpus
    memory_mib: Callable[[], int] = memory_mib
    no_containers: Callable[[], str] = lambda: why_none("", os.environ)
    whose: Callable[[int], Whose | None] = _whose_here


class Machine:
    """`gpus`: number of slots to declare instead of asking the driver. Blocking; called from a thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        name: str = "",
        gpus: int | None = None,
        readings: Callable[[], tuple[GpuReading, ...]] | None = None,
        labels: dict[str, str] | None = None,
        probe: Probe | None = None,
    ) -> None:
        self.name = name or socket.gethostname() or "localhost"
        self._clock = clock
        self._declared = gpus
        self._readings = readings or Nvml().read
        self._labels = labels or {}
        self._probe = probe or Probe()
        self._dirty_since: dict[int, float] = {}
        self._use: dict[int, GpuUse] = {}

    def declare(self, gpus: int | None) -> None:
        """From the next reading on: this number of slots, or (None) the GPUs that the driver knows."""
        self._declared = gpus

    def read(self, ours: Ours) -> Node:
        return Node(
            name=self.name,
            gpus=self._gpus(ours),
            # One CPU per declared slot, in addition to the machine's own, which remain for jobs without a GPU.
            cpus=self._probe.cpus() + (self._declared or 0),
            memory_mib=self._probe.memory_mib(),
            labels=self._labels,
            executor=self._probe.executor,
            no_containers=self._probe.no_containers(),
        )

    def use(self) -> dict[int, GpuUse]:
        """The use of each GPU as of the last `read`. Declared slots have none."""
        return self._use

    def gpu_clean(self, gpu: int, ours: Ours) -> bool:
        """Whether this GPU may be allocated to the next run. Always true for declared slots."""
        if self._declared is not None:
            return True
        return all(not _leftover(reading, ours, self._probe) for reading in self._readings() if reading.index == gpu)

    def _gpus(self, ours: Ours) -> tuple[Gpu, ...]:
        if self._declared is not None:
            self._use = {}
            return slots(self._declared, ours.gpus)
        readings = self._readings()
        known = (reading for reading in readings if not reading.trouble)
        self._use = {reading.index: GpuUse(percent=reading.percent, memory_mib=reading.used_mib) for reading in known}
        return tuple(self._gpu(reading, ours) for reading in readings)

    def _gpu(self, reading: GpuReading, ours: Ours) -> Gpu:
        health, why = self._health(reading, ours)
        others = [process for process in reading.processes if is_others(process, ours, self._probe)]
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
            uuid=reading.uuid,
        )

    def _health(self, reading: GpuReading, ours: Ours) -> tuple[GpuHealth, str]:
        if reading.trouble:
            return GpuHealth.QUARANTINED, f"the driver cannot read it: {reading.trouble}; see `nvidia-smi` and dmesg"
        why = _leftover(reading, ours, self._probe)
        if not why:
            self._dirty_since.pop(reading.index, None)
            return GpuHealth.OK, ""
        since_s = self._dirty_since.setdefault(reading.index, self._clock.monotonic_s())
        if self._clock.monotonic_s() - since_s < QUARANTINE_S:
            return GpuHealth.DIRTY, "its last run has ended, but its memory is not free yet"
        return GpuHealth.QUARANTINED, f"{why}; find the process or reset the GPU: it returns when its memory is free"


def _leftover(reading: GpuReading, ours: Ours, probe: Probe) -> str:
    """A sentence about memory that no visible process holds; empty: none. Also empty while a run holds the GPU, because
    the driver may not show its processes (containers)."""
    living = [process for process in reading.processes if probe.whose(process.pid)]
    if reading.index in ours.gpus or any(process.memory_mib is None for process in living):
        return ""
    left_mib = reading.used_mib - sum(process.memory_mib or 0 for process in living)
    return f"about {left_mib // GRAIN_MIB * GRAIN_MIB} MiB are in use by no process" if left_mib > LEFTOVER_MIB else ""


def is_others(process: GpuProcess, ours: Ours, probe: Probe) -> bool:
    """Whether a process is not Swell's: alive, without a mark of Swell, and not a descendant of a shim."""
    whose = probe.whose(process.pid)
    if whose is None or whose.mark in ours.marks:
        return False
    return not ours.shims.intersection((process.pid, *whose.above))


class InThread:
    """Reads the daemon's own machine in a thread, so that a driver that hangs blocks nothing else."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    async def read(self, ours: Ours) -> Node:
        return await asyncio.to_thread(self._machine.read, ours)

    def use(self) -> dict[int, GpuUse]:
        return self._machine.use()

    async def clean(self, gpus: Sequence[int], ours: Ours) -> bool:
        return await asyncio.to_thread(lambda: all(self._machine.gpu_clean(gpu, ours) for gpu in gpus))
