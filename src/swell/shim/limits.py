"""What a worker may use of its machine, held to by the kernel: memory, processes, and its part of the CPUs. Standard
library only.

Where the shim may make cgroups: those of v1 per controller, those of v2 where the controllers are handed down to them.
Where it may not, nothing is limited and `swell doctor` says so."""

from __future__ import annotations

import contextlib
import os

from swell.shim.files import Json
from swell.shim.members import own_place, write

MIB = 1 << 20
MAX_PIDS = 16384
"""Processes and threads of one worker; at most half of what the machine can number."""
CONTROLLERS = ("memory", "pids", "cpu")


def groups(mark: str) -> list[str]:
    """Directories for the worker of this mark, one per controller that may be used, each once."""
    found = [place for name in CONTROLLERS for place in (own_place(name), own_place("")) if place]
    return [f"{place}/swell-{mark}" for place in dict.fromkeys(found)]


def impose(mark: str, request: Json) -> list[str]:
    """Make the groups with their limits; returns those in which one holds. Best effort, each for itself."""
    wanted = request.get("limits") or {}
    return [group for group in groups(mark) if wanted and _imposed(group, _files(wanted))]


def _imposed(group: str, files: dict[str, str]) -> bool:
    with contextlib.suppress(OSError):
        os.mkdir(group)
    with contextlib.suppress(OSError):
        os.chmod(group, 0o755)  # noqa: S103 - programs look up there what they may use
    held = False
    for name, value in files.items():
        path = f"{group}/{name}"
        if os.path.exists(path):
            with contextlib.suppress(OSError):
                write(path, value)
                held = True
    return held


def _files(wanted: Json) -> dict[str, str]:
    """What to write where: the names of v1, then those of v2. A file that is not in a group is not of its kind."""
    cpus, memory = max(1, int(wanted.get("cpus", 1))), int(wanted.get("memory_mib", 0)) * MIB
    pids = str(min(MAX_PIDS, _pid_max() // 2))
    found = {"pids.max": pids, "cpu.shares": str(min(1024 * cpus, 262144)), "cpu.weight": str(min(100 * cpus, 10000))}
    if memory:
        found.update({"memory.limit_in_bytes": str(memory), "memory.max": str(memory)})
    return found


def _pid_max() -> int:
    with contextlib.suppress(OSError, ValueError), open("/proc/sys/kernel/pid_max", encoding="ascii") as file:
        return int(file.read())
    return 2 * MAX_PIDS


def remove(mark: str) -> None:
    """Once nothing is in them."""
    for group in groups(mark):
        with contextlib.suppress(OSError):
            os.rmdir(group)
