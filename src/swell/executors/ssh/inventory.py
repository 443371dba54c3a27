"""Reads the inventory of a machine over SSH through its agent: CPUs, memory, GPUs by UUID, and their processes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from swell.core.idle import GpuUse
from swell.core.resources import Node
from swell.executors.inventory import Machine, Ours, Probe, Whose
from swell.executors.nvml import GpuProcess, GpuReading, short_type
from swell.executors.ssh.transport import SshTransport
from swell.executors.transport import Json
from swell.ports import Clock

MIG = "MIG is on, and Swell gives out whole GPUs only; turn it off (`nvidia-smi -mig 0`) to use it"
GONE = "the driver does not list it any more; it may have fallen off the bus: see dmesg, and boot the machine"


class FarMachine:
    """See `places.Inspected`."""

    def __init__(self, name: str, transport: SshTransport, clock: Clock, runtime: str = "") -> None:
        """`runtime`: the container runtime that the operator chose; empty: any known one."""
        self._transport = transport
        self._runtime = runtime
        self._told: Json = {"cpus": 1, "memory_mib": 1024, "gpus": [], "trouble": "", "no_containers": ""}
        self._readings: tuple[GpuReading, ...] = ()
        self._whose: Mapping[int, Whose] = {}
        self._asking = asyncio.Lock()
        self._asked = self._answered = 0  # readings that were begun, and the last one that has come
        probe = Probe(
            executor="ssh",
            cpus=lambda: int(self._told["cpus"]),
            memory_mib=lambda: int(self._told["memory_mib"]),
            no_containers=lambda: str(self._told["no_containers"]),
            whose=lambda pid: self._whose.get(pid),
        )
        self._machine = Machine(clock, name=name, readings=lambda: self._readings, probe=probe)

    async def read(self, ours: Ours) -> Node:
        await self._ask()
        return self._machine.read(ours)

    def use(self) -> dict[int, GpuUse]:
        return self._machine.use()

    async def clean(self, gpus: Sequence[int], ours: Ours) -> bool:
        """Declared slots have no reading, and are clean."""
        if not any(reading.index in gpus for reading in self._readings):
            return True
        await self._ask()
        return all(self._machine.gpu_clean(gpu, ours) for gpu in gpus)

    async def _ask(self) -> None:
        """Wait for a reading that begins from now on. The driver is slow, so callers during one reading share the
        next."""
        wanted = self._asked + 1
        async with self._asking:
            if self._answered < wanted:
                self._asked += 1
                await self._read()
                self._answered = self._asked

    async def _read(self) -> None:
        self._told = await self._transport.inventory(self._runtime)
        self._readings = readings_of(self._told, self._readings)
        seen = (process for gpu in self._told["gpus"] for process in gpu["processes"])
        self._whose = {p["pid"]: Whose(mark=p["mark"], above=tuple(p["above"])) for p in seen}


def readings_of(told: Json, before: Sequence[GpuReading]) -> tuple[GpuReading, ...]:
    """The readings by UUID. A GPU that is not listed any more is kept, but no job gets it."""
    found = {gpu["index"]: _reading(gpu) for gpu in told["gpus"] if gpu["index"] >= 0}
    listed = {reading.uuid for reading in found.values()}
    for known in before:
        if known.uuid not in listed and known.index not in found:
            found[known.index] = replace(known, processes=(), trouble=told["trouble"] or GONE)
    return tuple(found[index] for index in sorted(found))


def _reading(gpu: Json) -> GpuReading:
    processes = tuple(GpuProcess(pid=p["pid"], memory_mib=p["memory_mib"]) for p in gpu["processes"])
    return GpuReading(
        index=gpu["index"],
        uuid=gpu["uuid"],
        type=short_type(gpu["name"]),
        total_mib=gpu["total_mib"],
        used_mib=gpu["used_mib"],
        percent=gpu["percent"],
        processes=processes,
        trouble=MIG if gpu["mig"] else "",
    )
