"""Which processes belong to a worker, and how to be rid of all of them. Standard library only.

A process belongs to a worker if it is in the worker's cgroup, below its shim or its guard (both are subreapers: orphans
are handed to them), or if it, or one above it, carries the worker's mark in its environment. A cgroup is used where one
may be made: v2 first, then the v1 hierarchies that limit nothing by themselves; no promise rests on it alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from swell.shim.processes import alive, descendants, marked, send

_V1 = ("freezer", "pids", "name=systemd")


def cgroup_for(mark: str) -> str:
    """The path of a cgroup that may be made for the worker of this mark; empty: none may."""
    return next((f"{parent}/swell-{mark}" for parent in _parents()), "")


def _parents() -> list[str]:
    """Directories below which this process may make a cgroup and move a child into it."""
    return [place for hierarchy in ("", *_V1) for place in (own_place(hierarchy),) if place]


def own_place(hierarchy: str) -> str:
    """The directory of our own cgroup in a hierarchy (by controller; empty: v2), if it may be divided; else empty."""
    own = _own_cgroups().get(hierarchy)
    for root, point, kind, options in _cgroup_mounts():
        top = root.rstrip("/")
        if own is None or (kind == "cgroup2") != (not hierarchy) or (hierarchy and hierarchy not in options):
            continue
        if (own + "/").startswith(top + "/"):
            place = (point + own[len(top) :]).rstrip("/")
            return place if _may_divide(place) else ""
    return ""


def _own_cgroups() -> dict[str, str]:
    """Path of ours in each hierarchy, by controller; the one of v2 by the empty name."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError), open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _cgroup_mounts() -> list[tuple[str, str, str, list[str]]]:
    """(root, mount point, file system, options) of each cgroup hierarchy that is mounted."""
    found = []
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            mount, _, system = line.partition(" - ")
            fields, (kind, _, options) = mount.split(), system.split(" ", 2)
            if kind in ("cgroup2", "cgroup"):
                found.append((fields[3], fields[4], kind, options.strip().split(",")))
    return found


def _may_divide(path: str) -> bool:
    """Moving a child needs the right to write both ends' cgroup.procs, and ours is one of them."""
    return os.access(path, os.W_OK) and os.access(f"{path}/cgroup.procs", os.W_OK)


def join(cgroup: str) -> None:
    """Move this process there. Best effort: marks and descent remain."""
    if cgroup:
        with contextlib.suppress(OSError):
            write(f"{cgroup}/cgroup.procs", "0")


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


class Members:
    """All processes of one worker. `roots` are subreapers of it that live: they are asked about, never counted."""

    def __init__(self, mark: str, cgroup: str = "") -> None:
        self.mark = mark
        self.cgroup = cgroup
        self.limited: list[str] = []  # cgroups that limit it

    def make_cgroup(self) -> None:
        if self.cgroup:
            with contextlib.suppress(OSError):
                os.mkdir(self.cgroup, 0o755)

    def alive(self, *roots: int) -> dict[int, int]:
        """pid -> start."""
        own = marked(self.mark)
        family = {*own, *descendants(*roots, *own), *self._grouped()} - {*roots, os.getpid()}
        return alive(sorted(family))

    def _grouped(self) -> list[int]:
        """In the cgroup, or in one that a member made below it."""
        found: list[int] = []
        for folder, _, _ in os.walk(self.cgroup) if self.cgroup else ():
            with contextlib.suppress(OSError), open(f"{folder}/cgroup.procs", encoding="ascii") as file:
                found += [int(line) for line in file]
        return found

    def kill(self, *roots: int) -> int:
        """SIGKILL to all; how many there were. The next call, or the kernel (v2), finds processes forked meanwhile."""
        left = self.alive(*roots)
        if left and self.cgroup:
            with contextlib.suppress(OSError):
                write(f"{self.cgroup}/cgroup.kill", "1")
        for pid, start in left.items():
            send(pid, start, signal.SIGKILL)
        return len(left)

    def sweep(self, within_s: float, *roots: int) -> bool:
        """Kill until nothing is left. False: something would not die in time."""
        give_up_s, pause_s = time.monotonic() + within_s, 0.005
        while self.kill(*roots):
            if time.monotonic() > give_up_s:
                return False
            time.sleep(pause_s)
            pause_s = min(0.2, pause_s * 1.5)
        self.remove_cgroup()
        return True

    def remove_cgroup(self) -> None:
        for folder, _, _ in os.walk(self.cgroup, topdown=False) if self.cgroup else ():
            with contextlib.suppress(OSError):
                os.rmdir(folder)
