"""What a machine reports about itself: sent over the connection as text and run there by its Python (3.8 or newer).

Standard library only, and nothing of the package. Prints one line per fact, as JSON behind MARK, each as soon as it is
known: shells may print lines of their own. Leaves nothing behind but one process that sleeps for a minute, so that the
next login can see whether it survived the end of this one.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from typing import Any

MARK = "swell-probe:"
ELSEWHERE = ("/scratch", "/local", "/data", "/var/tmp")  # noqa: S108 - places to suggest
SURVIVE_S = 60
SIOCGIFADDR = 0x8915


def tell(fact: str, **values: Any) -> None:
    print(MARK + json.dumps({"fact": fact, **values}), flush=True)


def mount_of(path: str) -> tuple[str, str]:
    """(kind of file system, mount point) of `path`, which need not exist yet."""
    path, best = os.path.realpath(path), ("", "")
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            before, _, after = line.partition(" - ")
            point = before.split()[4].encode().decode("unicode_escape")
            if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(best[1]):
                best = (after.split()[0], point)
    return best


def disk(path: str) -> dict[str, Any]:
    there = os.path.expanduser(path)
    while not os.path.isdir(there):
        there = os.path.dirname(there) or "/"
    try:
        with tempfile.NamedTemporaryFile(dir=there):
            trouble = ""
    except OSError as error:
        trouble = error.strerror or str(error)
    kind, _ = mount_of(there)
    return {"path": path, "kind": kind, "free_mib": shutil.disk_usage(there).free >> 20, "trouble": trouble}


def start_of(pid: int) -> str:
    """When a process began, in the kernel's ticks; empty if it is gone. It tells processes with the same pid apart."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    except OSError:
        return ""


def leave_one_behind() -> dict[str, Any]:
    """Leave a process as a run is left: in a session of its own, without open files of this one."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        child = os.fork()
        if child == 0:
            null = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
            os.closerange(3, 256)
            time.sleep(SURVIVE_S)
            os._exit(0)
        os.write(writing, b"%d" % child)
        os._exit(0)
    os.wait()
    pid = int(os.read(reading, 32))
    return {"pid": pid, "start": start_of(pid)}


def ended(pid: int, start: str) -> bool:
    """Whether the process is still there; ends it if it is."""
    alive = start_of(pid) == start
    if alive:
        os.kill(pid, signal.SIGKILL)
    return alive


def query(*argv: str) -> tuple[int, str]:
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30)
    except FileNotFoundError:
        return 127, ""
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stdout.decode(errors="replace")


def gpus() -> dict[str, Any]:
    wanted = "--query-gpu=index,uuid,name,memory.total,memory.used"
    code, rows = query("nvidia-smi", wanted, "--format=csv,noheader,nounits")
    apps = (
        query("nvidia-smi", "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader,nounits")[1] if not code else ""
    )
    return {"code": code, "rows": rows, "apps": apps}


def interface_of(address: str) -> str:
    """The network interface that has this IPv4 address; empty if none has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return ""


def main(root: str) -> None:
    tell("clock", now_s=time.time())
    tell("python", version=list(sys.version_info[:3]))
    connection = os.environ.get("SSH_CONNECTION", "").split()
    address = connection[2] if len(connection) == 4 else ""
    tell("address", address=address, interface=interface_of(address))
    memory_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    tell("size", cpus=len(os.sched_getaffinity(0)), memory_mib=memory_mib)
    tell("disk", **disk(root), elsewhere=[disk(path) for path in ELSEWHERE if os.path.isdir(path)])
    tell("left", **leave_one_behind())
    tell("gpus", **gpus())


if __name__ == "__main__":
    if sys.argv[1:2] == ["survived"]:
        tell("survived", alive=ended(int(sys.argv[2]), sys.argv[3]))
    else:
        main(sys.argv[1])
