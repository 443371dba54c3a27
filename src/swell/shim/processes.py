"""Facts about processes, and signals that reach exactly the one that was meant. Standard library only."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import NamedTuple

MARK = b"SWELL_MARK="


class Stat(NamedTuple):
    state: str
    parent: int
    group: int
    start: int  # clock ticks since boot

    @property
    def alive(self) -> bool:
        """A zombie holds nothing and waits for its parent."""
        return self.state not in "ZX"


def stat_of(pid: int) -> Stat | None:
    """None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return Stat(fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[19]))


def mark_of(pid: int) -> bytes:
    """The mark a process carries, or nothing."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environ = file.read()
    except OSError:
        return b""
    at = environ.find(MARK)
    return environ[at + len(MARK) :].split(b"\0", 1)[0] if at >= 0 else b""


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def marked(mark: str) -> list[int]:
    wanted = mark.encode()
    return [pid for pid in pids() if pid != os.getpid() and mark_of(pid) == wanted] if mark else []


def descendants(*roots: int) -> list[int]:
    """Processes below any of `roots`. A subreaper has all of them: orphans are handed to it."""
    parents = {pid: stat.parent for pid in pids() if (stat := stat_of(pid))}
    found: list[int] = []
    for pid in parents:
        above, seen = parents.get(pid, 0), 0
        while above > 1 and above not in roots and seen < len(parents):
            above, seen = parents.get(above, 0), seen + 1
        if above in roots:
            found.append(pid)
    return found


def alive(candidates: list[int]) -> dict[int, int]:
    """pid -> start of those that are no zombies."""
    stats = {pid: stat_of(pid) for pid in candidates}
    return {pid: stat.start for pid, stat in stats.items() if stat and stat.alive}


def send(pid: int, start: int, sig: int) -> bool:
    """Signal exactly that process: a pid that has come round again has another start."""
    fd = _pidfd(pid)
    try:
        stat = stat_of(pid)
        if stat is None or stat.start != start:
            return False
        if fd is None:
            os.kill(pid, sig)
        else:
            signal.pidfd_send_signal(fd, sig)  # novermin
        return True
    except OSError:
        return False
    finally:
        if fd is not None:
            os.close(fd)


def _pidfd(pid: int) -> int | None:
    """None where Python (before 3.9) or the kernel (before 5.3) has none: then there is a moment between the look at
    a process and the signal to it."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)  # novermin
    except OSError:
        return None


def exit_code(status: int) -> int:
    """Of a child, from its wait status; below 0: by this signal. `os.waitstatus_to_exitcode` is of Python 3.9."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def oom_kills() -> int:
    """A number that grows when the kernel's OOM killer strikes here: in our cgroup (v2, v1) or on this machine."""
    total = 0
    for path in _oom_counters():
        with contextlib.suppress(OSError, ValueError, IndexError), open(path, encoding="ascii") as file:
            total += sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    return total


def _oom_counters() -> list[str]:
    found = ["/proc/vmstat"]
    with contextlib.suppress(OSError), open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if not controllers:
                found += [f"{root}{path}/memory.events" for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")]
            elif "memory" in controllers.split(","):
                found.append(f"/sys/fs/cgroup/memory{path}/memory.oom_control")
    return found
