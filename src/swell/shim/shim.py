"""What runs on a node beside each worker process: holds it, and tells the truth about it afterwards.

One file, standard library only, so that it can be copied to any machine. A worker has a directory of its own:

    request.json  what to run (0600: it holds the environment, and with it secrets)
    lock          held (flock) as long as the shim lives: liveness is this lock, never a pid
    claim         made with O_EXCL before anything starts: the same attempt can never start twice
    log           output of the worker; never a pipe to anybody
    up            the worker's program has started
    exit.json     how it ended: written, synced, renamed
    swept         nothing that belonged to the worker is left

The run's directory above it holds `stop` once the run was asked to stop: nothing of it starts after that.
`shim.py nursery` forks a detached shim for each directory it is told (a fresh interpreter would cost 65 ms each);
when it dies the shims live on. `shim.py hold DIR` does the same for one worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import json
import os
import secrets
import signal
import socket
import sys
import time
import traceback
from typing import Any, NoReturn

KILL_NOW = signal.SIGUSR1
"""To a shim: SIGKILL everything now. SIGTERM to a shim: SIGTERM to the worker, and SIGKILL after its grace."""
WATCHED = (signal.SIGCHLD, signal.SIGTERM, KILL_NOW)
DEFAULTED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD, signal.SIGTERM)
RECORD_BYTES = 4096  # set aside for the exit record at the start, so that a full disk cannot lose it
OOM_SAMPLE_S = 5.0
MARK = b"SWELL_MARK="
_PDEATHSIG, _SET_NAME, _CHILD_SUBREAPER = 1, 15, 36
_LIBC = ctypes.CDLL(None, use_errno=True)

Json = dict[str, Any]


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
    """Best effort: on a full disk whoever looks finds out the slow way."""
    with contextlib.suppress(OSError):
        os.close(create(directory, name))


def notify(path: str, text: str) -> None:
    """Tell the daemon, best effort. Through a directory descriptor, as socket paths may be at most 107 bytes long."""
    if not path:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
        try:
            out.sendto(text.encode(), socket.MSG_DONTWAIT, f"/proc/self/fd/{folder}/{os.path.basename(path)}")
        finally:
            os.close(folder)


def stat_of(pid: int) -> tuple[str, int, int, int] | None:
    """(state, parent, group, start in clock ticks), or None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[19])


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


def descendants(root: int) -> list[int]:
    """Processes below `root`. A subreaper has all of them: orphans are handed to it."""
    parents = {pid: stat[1] for pid in pids() if (stat := stat_of(pid))}
    found: list[int] = []
    for pid in parents:
        above, seen = parents.get(pid, 0), 0
        while above > 1 and above != root and seen < len(parents):
            above, seen = parents.get(above, 0), seen + 1
        if above == root:
            found.append(pid)
    return found


def alive(candidates: list[int]) -> dict[int, int]:
    """pid -> start of those that are no zombies: a zombie holds nothing and waits for its parent."""
    stats = {pid: stat_of(pid) for pid in candidates}
    return {pid: stat[3] for pid, stat in stats.items() if stat and stat[0] not in "ZX"}


def send(pid: int, start: int, sig: int) -> bool:
    """Signal exactly that process: a pid that has come round again has another start."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        stat = stat_of(pid)
        if stat is None or stat[3] != start:
            return False
        signal.pidfd_send_signal(fd, sig)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


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


def hold(directory: str, umask: int) -> None:
    """Claim and run the worker of this directory, to its end. Returns at once if it was claimed before or forgotten."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    request = read_json(os.path.join(directory, "request.json"))
    lock = take_lock(directory) if request else None
    if request is None or lock is None:
        return
    mark = secrets.token_hex(16)
    if claim(directory, mark):
        Holder(directory, request, mark, umask).run()


def stop_of(run_directory: str) -> float | None:
    """When the run was asked to stop, if it was. An empty file: even a full disk has room for it."""
    try:
        return os.stat(os.path.join(run_directory, "stop")).st_mtime
    except OSError:
        return None


def take_lock(directory: str) -> int | None:
    fd = create(directory, "lock", os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def claim(directory: str, mark: str) -> bool:
    """Only one can ever make the claim; durable before anything starts, or a power cut could let it start again."""
    stat = stat_of(os.getpid())
    body = {"pid": os.getpid(), "start": stat[3] if stat else 0, "mark": mark}
    try:
        fd = create(directory, "claim", os.O_WRONLY | os.O_EXCL)
    except FileExistsError:
        return False
    try:
        os.write(fd, json.dumps(body).encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    for folder in (directory, os.path.dirname(directory), os.path.dirname(os.path.dirname(directory))):
        sync_directory(folder)
    return True


class Holder:
    """One process, one wait: SIGCHLD, requests to stop and time-outs all arrive in `_wait`."""

    def __init__(self, directory: str, request: Json, mark: str, umask: int) -> None:
        self.directory = directory
        self.request = request
        self.mark = mark
        self.umask = umask
        self.asked = ""
        self.child = 0
        self.status: int | None = None
        self.kill_at: float | None = None
        self.oom_before = 0
        self.oom_now = 0

    def run(self) -> None:
        self._reserve()
        failed = self._start()
        if not failed:
            touch(self.directory, "up")
            self._notify()
            self._wait()
        self._record(failed)
        self._linger()
        self._sweep()
        touch(self.directory, "swept")
        self._notify()

    def _reserve(self) -> None:
        """Room for the exit record, now that there is some."""
        with contextlib.suppress(OSError):
            fd = create(self.directory, "exit.tmp")
            try:
                os.posix_fallocate(fd, 0, RECORD_BYTES)
            finally:
                os.close(fd)

    def _start(self) -> Json:
        """Start the worker. If it could not: at which step, and what the system said."""
        if stop_of(os.path.dirname(self.directory)) is not None:
            return {"step": "stopped"}
        _LIBC.prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)
        _LIBC.prctl(_SET_NAME, f"swell {self.request['run']}".encode()[:15], 0, 0, 0)
        self.oom_before = self.oom_now = oom_kills()
        try:
            log = create(self.directory, "log", os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            return {"step": "log", "errno": error.errno, "said": str(error)}
        self.child, failed = spawn(self.request, log, self.mark, self.umask)
        os.close(log)
        if failed:
            self._reap(wait=True)
        return failed

    def _wait(self) -> None:
        while self.status is None:
            info = signal.sigtimedwait(WATCHED, self._patience_s())
            if self._ended():
                return
            if info is None:
                self.oom_before, self.oom_now = self.oom_now, oom_kills()
            elif info.si_signo == signal.SIGTERM and not self.asked:
                self.asked = "term"
                self.kill_at = time.monotonic() + float(self.request["grace_s"])
                self._terminate()
            elif info.si_signo == KILL_NOW:
                self.asked = "kill"
                self.kill_at = time.monotonic()
            if self.kill_at is not None and time.monotonic() >= self.kill_at:
                self.asked = "kill"
                self._kill()

    def _ended(self) -> bool:
        self._reap()
        return self.status is not None

    def _patience_s(self) -> float:
        if self.kill_at is None:
            return OOM_SAMPLE_S
        return min(OOM_SAMPLE_S, max(0.05, self.kill_at - time.monotonic()))

    def _terminate(self) -> None:
        """The worker's group, and those of its descendants that left the group."""
        with contextlib.suppress(PermissionError):  # it has become somebody else (sudo)
            os.killpg(self.child, signal.SIGTERM)
        for pid, start in alive(self._family()).items():
            stat = stat_of(pid)
            if stat and stat[2] != self.child:
                send(pid, start, signal.SIGTERM)

    def _family(self) -> list[int]:
        return sorted({*descendants(os.getpid()), *marked(self.mark)})

    def _kill(self) -> int:
        left = alive(self._family())
        for pid, start in left.items():
            send(pid, start, signal.SIGKILL)
        return len(left)

    def _reap(self, *, wait: bool = False) -> bool:
        """Collect those that ended, adopted ones too. False: there is no child left at all."""
        while True:
            try:
                pid, status = os.waitpid(-1, 0 if wait and self.status is None else os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.child:
                self.status = status

    def _linger(self) -> None:
        """After SIGTERM the descendants have their grace too, though the worker itself may have left at once."""
        while self.asked == "term" and self._reap() and self.kill_at is not None and time.monotonic() < self.kill_at:
            info = signal.sigtimedwait(WATCHED, self._patience_s())
            if info is not None and info.si_signo == KILL_NOW:
                return

    def _sweep(self) -> None:
        """Nothing of the run outlives it. As a subreaper without children there are no descendants; what remains
        is what carries the mark but was started by somebody else on its behalf."""
        pause_s = 0.005
        while self._reap() or alive(marked(self.mark)):
            if not self._kill() and not self._reap():
                return
            signal.sigtimedwait([signal.SIGCHLD], pause_s)
            pause_s = min(1.0, pause_s * 1.5)

    def _record(self, failed: Json) -> None:
        code = os.waitstatus_to_exitcode(self.status) if self.status is not None else None
        killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL)  # a shell says 137 for its child
        record: Json = {
            "code": code if code is not None and code >= 0 and not failed else None,
            "signal": -code if code is not None and code < 0 else None,
            "oom": bool(killed and not self.asked and oom_kills() > self.oom_before),
            "asked": self.asked,
            "failed": failed,
            "last": "" if failed or code == 0 else self._last_line(),
            "at_s": time.time(),
        }
        data = json.dumps(record).encode()
        while True:
            try:
                return write_whole(self.directory, "exit.json", data, "exit.tmp")
            except FileNotFoundError:
                return None  # the directory was removed under us: nobody is left to tell
            except OSError:
                time.sleep(1.0)  # a full disk: the truth waits until there is room

    def _last_line(self) -> str:
        """Of the log: most often the very error. Secrets are not repeated."""
        try:
            with open(os.path.join(self.directory, "log"), "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - 4096))
                lines = log.read().decode("utf-8", "replace").split("\n")
        except OSError:
            return ""
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        for name in self.request.get("secrets", ()):
            if value := self.request["env"].get(name):
                last = last.replace(value, "***")
        return last[:300]

    def _notify(self) -> None:
        notify(self.request.get("notify", ""), f"{self.request['run']}/{self.request['rank']}")


def spawn(request: Json, log: int, mark: str, umask: int) -> tuple[int, Json]:
    """Fork and exec the worker's program. Returns its pid, and what failed if it could not be started."""
    told, tell = os.pipe()  # both close on exec: end of file means that the program has started
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _become(request, log, tell, mark, umask, parent)
    os.close(tell)
    with open(told, "rb") as pipe:
        return pid, json.loads(pipe.read() or b"{}")


def _become(request: Json, log: int, tell: int, mark: str, umask: int, parent: int) -> NoReturn:
    """In the forked child: a session of its own, then the program."""
    env = {**request["env"], "SWELL_RUN": request["run"], "SWELL_MARK": mark}
    step = "setup"
    try:
        os.setsid()
        _LIBC.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # a shim that is killed takes its worker along
        if os.getppid() != parent:
            os._exit(127)
        for sig in DEFAULTED:
            signal.signal(sig, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for fd, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
            os.dup2(source, fd)
        os.umask(umask)
        step = "cwd"
        os.chdir(request["cwd"] or "/")
        step = "exec"
        os.execvpe(request["argv"][0], request["argv"], env)  # noqa: S606 - argv is the user's own command, no shell
    except BaseException as error:  # whatever it is, only the parent may go on from here
        os.write(tell, json.dumps(_failure(step, error, request)).encode())
    os._exit(127)


def _failure(step: str, error: BaseException, request: Json) -> Json:
    program = request["argv"][0]
    return {
        "step": step,
        "errno": error.errno if isinstance(error, OSError) else None,
        "said": str(error)[:500],
        "program": program[:500],
        "there": "/" in program and os.path.exists(program),
        "cwd": request["cwd"][:500],
    }


def nursery(link: socket.socket, umask: int) -> None:
    """Fork a shim for each directory that arrives, until whoever sends them is gone."""
    gc.freeze()
    while directory := link.recv(65536):
        with contextlib.suppress(OSError):  # no more processes: the executor asks again
            detach(os.fsdecode(directory), umask, link)


def detach(directory: str, umask: int, link: socket.socket | None = None) -> None:
    """A shim that is nobody's child: forked twice, in its own session, with nothing open that others use."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        os.setsid()
        if os.fork():
            return
        if link is not None:
            link.close()
        hold(directory, umask)
    except BaseException:
        with contextlib.suppress(OSError), open(os.path.join(directory, "log"), "a", encoding="utf-8") as log:
            log.write("swell: what holds this process failed itself; please report this:\n" + traceback.format_exc())
    finally:
        os._exit(0)


def main(argv: list[str]) -> int:
    umask = os.umask(0o077)
    os.chdir("/")
    link = socket.socket(fileno=os.dup(0)) if argv[1:] == ["nursery"] else None
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    if link is not None:
        nursery(link, umask)
    else:
        detach(argv[2], umask)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
