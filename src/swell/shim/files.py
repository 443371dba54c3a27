"""Files of a worker's directory: written whole, marked with the node's own clock, locked. Standard library only.

Times of a node are seconds of CLOCK_BOOTTIME, which nobody sets: a wall clock that jumps changes no duration. Empty
marker files (`up`, `stop`) carry theirs as their mtime, so that even a full disk has room for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import secrets
import socket
import time
from typing import Any, Dict

from swell.shim.cause import cause_of
from swell.shim.processes import stat_of

Json = Dict[str, Any]


def boot_s() -> float:
    """Seconds since this machine was booted, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@functools.lru_cache(maxsize=None)
def boot_id() -> str:
    """Which boot `boot_s` counts from; empty if the system does not provide it."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
    return ""


def create(directory: str, name: str, flags: int = os.O_WRONLY) -> int:
    """Open a file of ours for writing; made if it is not there, for nobody else to read, never passed on."""
    return os.open(os.path.join(directory, name), flags | os.O_CREAT | os.O_CLOEXEC, 0o600)


def write_whole(directory: str, name: str, data: bytes, temporary: str = "") -> None:
    """Make the file's new content durable, or leave the old one: write, sync, rename, sync the directory."""
    temporary = temporary or f".{name}.{secrets.token_hex(4)}"
    fd = create(directory, temporary)
    try:
        os.pwrite(fd, data, 0)
        os.ftruncate(fd, len(data))
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(os.path.join(directory, temporary), os.path.join(directory, name))
    sync_directory(directory)


def sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_json(path: str) -> Json | None:
    """None when it is not there, or was cut short by a crash."""
    try:
        with open(path, "rb") as file:
            value = json.loads(file.read())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def touch(directory: str, name: str) -> None:
    """Leave a marker with the node's time. Best effort: without it, readers find out from the processes themselves."""
    with contextlib.suppress(OSError):
        fd = create(directory, name)
        try:
            at_s = boot_s()
            os.utime(fd, (at_s, at_s))
        finally:
            os.close(fd)


def touched_s(directory: str, name: str) -> float | None:
    """When (`boot_s`) the marker was left, if it was."""
    try:
        return os.stat(os.path.join(directory, name)).st_mtime
    except OSError:
        return None


def notify(path: str, text: str) -> None:
    """Notify the daemon, best effort. Through a directory descriptor, as socket paths may be at most 107 bytes long."""
    if not path:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
        try:
            out.sendto(text.encode(), socket.MSG_DONTWAIT, f"/proc/self/fd/{folder}/{os.path.basename(path)}")
        finally:
            os.close(folder)


def this_process() -> Json:
    """Names this process so that it cannot be taken for another one later: pids and start times come round again."""
    stat = stat_of(os.getpid())
    return {"pid": os.getpid(), "start": stat.start if stat else 0, "boot": boot_id()}


def take_lock(directory: str) -> int | None:
    """The lock of a worker, for as long as the descriptor is open, here or in a forked child. It names its holder."""
    fd = create(directory, "lock", os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    with contextlib.suppress(OSError):  # a full disk: the lock holds, but its holder stays unnamed
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(this_process()).encode(), 0)
    return fd


def claim(directory: str, mark: str, cgroup: str = "") -> bool:
    """Only one can ever make the claim; durable before anything starts, or a power cut could let it start again."""
    try:
        fd = create(directory, "claim", os.O_WRONLY | os.O_EXCL)
    except FileExistsError:
        return False
    try:
        os.write(fd, json.dumps({**this_process(), "mark": mark, "cgroup": cgroup}).encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    for folder in (directory, os.path.dirname(directory), os.path.dirname(os.path.dirname(directory))):
        sync_directory(folder)
    return True


def cause_in(path: str, hidden: list[str], window: int = 64 * 1024) -> str:
    """The line of a log that says why its program failed, with `***` instead of these values, also
    where the window's edge or the end of the log cuts one."""
    values = sorted((os.fsencode(value) for value in hidden if value), key=len, reverse=True)
    margin = max(map(len, values), default=0)
    try:
        with open(path, "rb") as log:
            begin = max(0, os.fstat(log.fileno()).st_size - window - margin)
            log.seek(begin)
            data = log.read()
    except OSError:
        return ""
    data = data[_edge(data, margin, values) :] if begin else data
    for value in values:
        data = data.replace(value, b"***")
    data = _without_beginning(data, values)
    return cause_of(data.decode("utf-8", "replace"))


def _edge(data: bytes, edge: int, values: list[bytes]) -> int:
    """Where to cut: behind every value that a cut at `edge` would leave a part of."""
    moved = True
    while moved:
        moved = False
        for value in values:
            at = data.find(value, max(0, edge - len(value) + 1), edge + len(value) - 1)
            if 0 <= at < edge:
                edge, moved = at + len(value), True
    return edge


def _without_beginning(data: bytes, values: list[bytes]) -> bytes:
    """A process that was killed may have printed the beginning of a value only."""
    end = data.rstrip()
    for value in values:
        for length in range(len(value) - 1, 3, -1):
            if end.endswith(value[:length]):
                return end[:-length] + b"***"
    return data
