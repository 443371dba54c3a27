"""What runs on a node beside each worker process: holds it, and records how it ended.

Standard library only, like all of this folder, so that it can be copied to any machine. A worker has its own directory:

    request.json  what to run (0600: it holds the environment, and with it secrets)
    lock          held (flock) by the shim and its guard: liveness is this lock, never a pid
    claim         made with O_EXCL before anything starts: the same attempt can never start twice
    log           output of the worker; never a pipe to anybody
    log.times     how large the log was when (`log_times`)
    up            the worker's program has started
    exit.json     how it ended: written, synced, renamed
    swept         nothing that belonged to the worker is left

The run's directory above it holds `stop` once the run was asked to stop: nothing of it starts after that.
`shim.py nursery` forks a detached guard with its shim for each directory it is sent (a fresh interpreter would cost 65
ms each), and answers; when it dies they live on. `shim.py hold DIR` does the same for one worker. The guard is the
shim's parent and does one thing: when the shim has died without sweeping, it sweeps.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":  # started by its path, isolated: the folder that holds `swell` is not on sys.path
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import contextlib
import ctypes
import errno
import gc
import json
import math
import pwd
import secrets
import select
import signal
import socket
import time
import traceback
from typing import NoReturn

from swell.shim import containers, lease, limits
from swell.shim.files import (
    Json,
    boot_id,
    boot_s,
    cause_in,
    claim,
    create,
    notify,
    read_json,
    take_lock,
    touch,
    touched_s,
    write_whole,
)
from swell.shim.log_times import LogTimes
from swell.shim.members import Members, cgroup_for, join
from swell.shim.processes import exit_code, oom_kills, send, stat_of

KILL_NOW = signal.SIGUSR1
"""To a shim: SIGKILL everything now. SIGTERM to a shim: SIGTERM to the worker, and SIGKILL after its grace."""
WATCHED = (signal.SIGCHLD, signal.SIGTERM, KILL_NOW)
DEFAULTED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD, signal.SIGTERM)
RECORD_BYTES = 4096  # set aside for the exit record at the start, so that a full disk cannot lose it
OOM_SAMPLE_S = 5.0
LOG_SAMPLE_S = 5.0
START_SAMPLE_S = 0.25
GUARD_ROUND_S = 60.0
_PDEATHSIG, _SET_NAME, _CHILD_SUBREAPER = 1, 15, 36
_LIBC = ctypes.CDLL(None, use_errno=True)


def hold(directory: str, umask: int) -> None:
    """Claim and run the worker of this directory, to its end. Returns at once if it was claimed before or forgotten."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    request = read_json(os.path.join(directory, "request.json"))
    lock = take_lock(directory) if request else None
    if request is None or lock is None:
        return
    pid = os.fork()  # both have the lock now: it is held until the last of them has ended
    if pid:
        guard(directory, request, pid)
        return
    mark = secrets.token_hex(16)
    cgroup = cgroup_for(mark)
    if claim(directory, mark, cgroup):
        Holder(directory, request, Members(mark, cgroup), umask).run()


def guard(directory: str, request: Json, shim: int) -> None:
    """Wait for the shim's end; sweep what it left if it could not do so itself (it was killed)."""
    become("swell guard")
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    while True:
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(-1, 0)[0] != shim:
                continue
        break
    claimed = read_json(os.path.join(directory, "claim")) or {}
    if touched_s(directory, "swept") is not None or claimed.get("pid") != shim:
        return
    members = Members(claimed["mark"], claimed["cgroup"])
    while not (members.sweep(GUARD_ROUND_S, os.getpid()) and containers.remove(request)):
        reap()
    limits.remove(claimed["mark"])
    touch(directory, "swept")
    notify(request.get("notify", ""), f"{request['run']}/{request['rank']}")


def become(name: str) -> None:
    """A subreaper, with a name of its own in `ps`."""
    _LIBC.prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)
    _LIBC.prctl(_SET_NAME, name.encode()[:15], 0, 0, 0)


def reap() -> dict[int, int]:
    """Status by pid of all children that have ended."""
    found: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found[ended[0]] = ended[1]
    return found


class Holder:
    """One process, one wait: SIGCHLD, requests to stop and time-outs all arrive in `_wait`."""

    def __init__(self, directory: str, request: Json, members: Members, umask: int) -> None:
        self.directory = directory
        self.request = request
        self.members = members
        self.umask = umask
        self.asked = ""
        self.leased = bool(request.get("lease"))
        self.child = 0
        self.status: int | None = None
        self.kill_at: float | None = None
        self.oom_before = 0
        self.oom_now = 0
        self.times = LogTimes(directory, LOG_SAMPLE_S)

    def run(self) -> None:
        self._reserve()
        failed = self._start()
        if not failed:
            if not self.asked:
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
        """Start the worker. If it could not: at which step, and the system's message."""
        if touched_s(os.path.dirname(self.directory), "stop") is not None:
            return {"step": "stopped"}
        if self.leased and min(lease.order_left_s(self.request["lease"]), self._lease_left_s()) <= 0:
            return {"step": "lease"}
        become(f"swell {self.request['run']}")
        self.members.make_cgroup()
        self.members.limited = limits.impose(self.members.mark, self.request)
        self.oom_before = self.oom_now = oom_kills()
        try:
            log = create(self.directory, "log", os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            return {"step": "log", "errno": error.errno, "said": str(error)}
        try:
            self.child, started = spawn(self.request, self.directory, log, self.members, self.umask)
        except OSError as error:
            return {"step": "fork", "errno": error.errno, "said": str(error)}
        finally:
            os.close(log)
        failed = self._failure(started)
        if failed:
            self._reap(wait=True)
        return failed

    def _failure(self, started: int) -> Json:
        """Why the worker's program did not start, if so. A container takes its time, if its image has to be fetched:
        it can be asked to stop meanwhile."""
        contained = self.request.get("container")
        while contained and not self.asked and not select.select([started], [], [], START_SAMPLE_S)[0]:
            self._hear(signal.sigtimedwait(WATCHED, 0))
        with open(started, "rb") as pipe:
            return {} if self.asked else json.loads(pipe.read() or b"{}")

    def _wait(self) -> None:
        while self.status is None:
            info = signal.sigtimedwait(WATCHED, self._patience_s())
            if self._ended():
                return
            self.times.look()
            if info is None:
                self.oom_before, self.oom_now = self.oom_now, oom_kills()
            self._hear(info)

    def _hear(self, info: signal.struct_siginfo | None) -> None:
        if info is not None and info.si_signo == signal.SIGTERM:
            self._ask("term")
        elif info is not None and info.si_signo == KILL_NOW:
            self.asked = self.asked if self.asked == "lease" else "kill"
            self.kill_at = boot_s()
        if self._lease_left_s() <= 0:
            self._ask("lease")
        if self.kill_at is not None and boot_s() >= self.kill_at:
            self.asked = self.asked if self.asked == "lease" else "kill"
            self._kill()

    def _ask(self, why: str) -> None:
        """SIGTERM, and SIGKILL after the grace. Whoever asks first is remembered."""
        if not self.asked:
            self.asked = why
            self.kill_at = boot_s() + float(self.request["grace_s"])
            self._terminate()

    def _lease_left_s(self) -> float:
        """Of the machine's lease, which the daemon renews; a run without one may go on without a limit."""
        return lease.left_s(os.path.dirname(os.path.dirname(self.directory))) if self.leased else math.inf

    def _ended(self) -> bool:
        self._reap()
        return self.status is not None

    def _patience_s(self) -> float:
        if self.kill_at is None:
            return min(OOM_SAMPLE_S, max(0.05, self._lease_left_s()))
        return min(OOM_SAMPLE_S, max(0.05, self.kill_at - boot_s()))

    def _terminate(self) -> None:
        """The worker's group, and those of its descendants that left the group."""
        if self.request.get("container"):
            if not containers.terminate(self.members.alive(os.getpid())):
                self._kill()
            return
        with contextlib.suppress(PermissionError):  # it has become somebody else (sudo)
            os.killpg(self.child, signal.SIGTERM)
        for pid, start in self.members.alive(os.getpid()).items():
            stat = stat_of(pid)
            if stat and stat.group != self.child:
                send(pid, start, signal.SIGTERM)

    def _kill(self) -> int:
        return self.members.kill(os.getpid())

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
        while self.asked in ("term", "lease") and self._reap() and self.kill_at is not None and boot_s() < self.kill_at:
            info = signal.sigtimedwait(WATCHED, self._patience_s())
            if info is not None and info.si_signo == KILL_NOW:
                return

    def _sweep(self) -> None:
        """Nothing of the run outlives it. As a subreaper without children there are no descendants; what remains
        is what carries the mark but was started by somebody else on its behalf, or is in the cgroup."""
        pause_s = 0.005
        while self._kill() or self._reap() or not containers.remove(self.request):
            signal.sigtimedwait([signal.SIGCHLD], pause_s)
            pause_s = min(1.0, pause_s * 1.5)
        self.members.remove_cgroup()
        limits.remove(self.members.mark)

    def _record(self, failed: Json) -> None:
        code = exit_code(self.status) if self.status is not None else None
        killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL)  # a shell says 137 for its child
        record: Json = {
            "code": code if code is not None and code >= 0 and not failed else None,
            "signal": -code if code is not None and code < 0 else None,
            "oom": bool(killed and not self.asked and oom_kills() > self.oom_before),
            "asked": self.asked,
            "failed": failed,
            "last": "" if failed or code == 0 else self._cause(),
            "boot_s": boot_s(),
            "boot": boot_id(),
        }
        if self.request.get("container"):
            record = containers.outcome(self.directory, record)
        data = json.dumps(record).encode()
        while True:
            try:
                return write_whole(self.directory, "exit.json", data, "exit.tmp")
            except FileNotFoundError:
                return None  # the directory was removed under us: nobody is left to tell
            except OSError:
                time.sleep(1.0)  # a full disk: the truth waits until there is room

    def _cause(self) -> str:
        """The line of the log that says why. Secrets are not repeated."""
        hidden = [self.request["env"].get(name, "") for name in self.request.get("secrets", ())]
        return cause_in(os.path.join(self.directory, "log"), hidden)

    def _notify(self) -> None:
        notify(self.request.get("notify", ""), f"{self.request['run']}/{self.request['rank']}")


def spawn(request: Json, directory: str, log: int, members: Members, umask: int) -> tuple[int, int]:
    """Fork what becomes the worker's program, or holds its container. Returns its pid, and a pipe: at its end the
    program has started, unless it says what failed."""
    started, tell = os.pipe()  # both close on exec
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(started)
        os.close(tell)
        raise
    if pid == 0:
        _become(request, directory, log, tell, members, umask, parent)
    os.close(tell)
    return pid, started


def _become(request: Json, directory: str, log: int, tell: int, members: Members, umask: int, parent: int) -> NoReturn:
    """In the forked child: a session of its own, then the program."""
    env = {**request["env"], "SWELL_RUN": request["run"], "SWELL_MARK": members.mark}
    step = "setup"
    try:
        os.setsid()
        _LIBC.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # a shim that is killed takes its worker along
        if os.getppid() != parent:
            os._exit(127)
        for group in (members.cgroup, *members.limited):
            join(group)
        for sig in DEFAULTED:
            signal.signal(sig, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for fd, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
            os.dup2(source, fd)
        if request.get("container"):
            os._exit(containers.hold(request, directory, members.mark, tell))
        os.umask(umask)
        if request.get("user"):
            step = "user"
            _belong_to(request["user"])
            env = {**env, **_account(request["user"])}
            _LIBC.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # cleared by a change of user
            if os.getppid() != parent:
                os._exit(127)
        step = "cwd"
        os.chdir(request["cwd"] or "/")
        step = "exec"
        os.execvpe(request["argv"][0], request["argv"], env)  # noqa: S606 - argv is the user's own command, no shell
    except BaseException as error:  # whatever it is, only the parent may go on from here
        os.write(tell, json.dumps(_failure(step, error, request)).encode())
    os._exit(127)


def _belong_to(user: str) -> None:
    """From here on the process is this user's, with none of our rights. Only root can do that."""
    account = pwd.getpwnam(user)
    os.initgroups(user, account.pw_gid)
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)


def _account(user: str) -> Json:
    account = pwd.getpwnam(user)
    return {"HOME": account.pw_dir, "USER": user, "LOGNAME": user, "SHELL": account.pw_shell}


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
    """Fork a shim for each directory that arrives, until whoever sends them is gone. Answers each: `0`, or an errno."""
    gc.freeze()
    while directory := link.recv(65536):
        code = 0
        try:
            detach(os.fsdecode(directory), umask, link)
        except OSError as error:  # no more processes: the executor asks again
            code = error.errno or errno.EAGAIN
        with contextlib.suppress(OSError):  # whoever asked is gone: the next read ends this
            link.send(str(code).encode())


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
