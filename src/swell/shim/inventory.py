"""What this machine has: CPUs, memory, GPUs, a container runtime. Runs on that machine."""

from __future__ import annotations

import os

from swell.shim.containers import why_none
from swell.shim.files import Json
from swell.shim.gpus import read_gpus


def read_machine(runtime: str = "") -> Json:
    """`runtime`: of containers, as the operator chose it; empty: any that is known."""
    found = {"cpus": cpus(), "memory_mib": memory_mib(), "no_containers": why_none(runtime, os.environ)}
    return {**found, **read_gpus()}


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
        with open(path, encoding="ascii") as file:
            return file.read().splitlines()
    except OSError:
        return []
