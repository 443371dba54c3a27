"""Process 1 of a container: starts its worker, passes on what it is asked, and says how it ended.

Standard library only; brought into the container by a ConfigMap and started by `start.sh` where the image has python3.
What the pod's manifest leaves to it, by environment:

    SWELL_POD_ADDRESSES  a file that will hold the addresses of the run's pods; they replace `@swell-address-N@`
    SWELL_POD_FILES      a directory to be filled with the submitted files, if it is not there yet
    SWELL_POD_CWD        where the worker runs
    SWELL_POD_PATH       directories before all others on its PATH
    SWELL_POD_UP         a file to write once the worker has started
    SWELL_POD_NODE       set if the run has a lease: the node that it is asked for
    SWELL_POD_GRACE_S    how long the worker has to leave when that lease is over

Its last word is the container's termination message: {"code", "signal", "asked", "failed", "at_s", "epochs"}.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":  # started by its path, isolated: the folder that holds `swell` is not on sys.path
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import contextlib
import json
import re
import shutil
import signal
import tarfile
import time
import urllib.error
import urllib.request
from typing import NoReturn

from swell.shim.ask import read_journal
from swell.shim.files import Json, boot_s
from swell.shim.processes import exit_code
from swell.shim.renewal import NoLease, Renewal

TERMINATION_LOG = "/dev/termination-log"
ADDRESSES_S, REACH_S, PAUSE_S, LOOK_S = 600.0, 90.0, 0.2, 1.0
"""The pods of a run have so long until all have an address; the daemon may take so long to answer. A lease is looked at
every LOOK_S."""
_PLACE = re.compile(r"@swell-address-([0-9]+)@")
_OWN = "SWELL_POD_"


class CannotStart(Exception):
    """At which step, and why, in words for a person."""

    def __init__(self, step: str, said: str, **more: object) -> None:
        super().__init__(said)
        self.failed: Json = {"step": step, "said": said, **more}


class Worker:
    """The one process that this container is for, with whatever it starts: all of it ends with the container."""

    def __init__(self, lease: Renewal | None = None, grace_s: float = 0.0) -> None:
        self.pid = 0
        self.asked = ""
        self._lease = lease
        self._grace_s = grace_s
        self._kill_at_s: float | None = None

    def ask(self, number: int, _frame: object) -> None:
        """SIGTERM from the kubelet, which kills the whole container after the grace."""
        self.asked = self.asked or "term"
        self._send(number)

    def run(self, argv: list[str], env: dict[str, str], cwd: str, up: str) -> int:
        """Its wait status. As process 1 this one also collects what others leave."""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        if self._lease is not None:
            self._begin(self._lease)
        self.pid = _spawn(argv, env, cwd)
        if self.asked:
            self.ask(signal.SIGTERM, None)
        if self._lease is not None:
            self._lease.keep()
        with open(up, "w", encoding="ascii"):
            pass
        while True:
            status = self._ended()
            if status is not None:
                return status
            signal.sigtimedwait([signal.SIGCHLD], LOOK_S)
            self._obey_lease()

    def _begin(self, lease: Renewal) -> None:
        try:
            lease.begin(REACH_S)
        except NoLease as error:
            raise CannotStart("stopped" if error.refused else "reach", str(error)) from None

    def _ended(self) -> int | None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == self.pid:
                    return status
                if pid == 0:
                    return None
        raise RuntimeError("the worker is no child of this process")

    def _obey_lease(self) -> None:
        """When the lease is over: SIGTERM, the grace, SIGKILL, whatever the kubelet does or does not."""
        if self._lease is not None and self._kill_at_s is None and self._lease.left_s() <= 0:
            self.asked = self.asked or "lease"
            self._kill_at_s = boot_s() + self._grace_s
            self._send(signal.SIGTERM)
        if self._kill_at_s is not None and boot_s() >= self._kill_at_s:
            self._kill()

    def _send(self, number: int) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def _kill(self) -> None:
        """All that is in the container, where this is its first process."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1 if os.getpid() == 1 else -self.pid, signal.SIGKILL)


def _spawn(argv: list[str], env: dict[str, str], cwd: str) -> int:
    started, tell = os.pipe()  # both close on exec: end of file means that the program has started
    pid = os.fork()
    if pid == 0:
        _become(argv, env, cwd, tell)
    os.close(tell)
    with open(started, "rb") as pipe:
        failed = json.loads(pipe.read() or b"{}")
    if failed:
        os.waitpid(pid, 0)
        raise CannotStart(**failed)
    return pid


def _become(argv: list[str], env: dict[str, str], cwd: str, tell: int) -> NoReturn:
    step = "cwd"
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.chdir(cwd or "/")
        os.dup2(1, 2)  # one stream: the runtime stamps two apart, and their lines would change places
        step = "exec"
        os.execvpe(argv[0], argv, env)  # noqa: S606 - the user's own command, no shell
    except OSError as error:
        there = "/" in argv[0] and os.path.exists(argv[0])
        more = {"errno": error.errno, "program": argv[0][:500], "there": there, "cwd": cwd[:500]}
        os.write(tell, json.dumps({"step": step, "said": str(error)[:500], **more}).encode())
    os._exit(127)


def addresses(path: str, asked: Worker) -> list[str]:
    """Of the run's pods in order of their nodes, once all have one."""
    give_up_s = time.monotonic() + ADDRESSES_S
    while time.monotonic() < give_up_s and not asked.asked:
        with contextlib.suppress(OSError), open(path, encoding="ascii") as file:
            found = file.read().split()
            if found:
                return found
        time.sleep(PAUSE_S)
    raise CannotStart("addresses", "the other pods of the run did not get an address in time")


def fetch_files(target: str, url: str, run: str, token: str) -> None:
    """The submitted files, once per job: attempts after the first find what the job wrote there. Several pods may try
    at once; the first that is done gives the directory its name."""
    if os.path.isdir(target):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    fresh = f"{target}.{run}.{os.uname().nodename}.{os.getpid()}"
    shutil.rmtree(fresh, ignore_errors=True)
    os.makedirs(fresh)
    try:
        _download(fresh, url, run, token)
        os.rename(fresh, target)
    except OSError:
        if not os.path.isdir(target):
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _download(target: str, url: str, run: str, token: str) -> None:
    request = urllib.request.Request(  # noqa: S310 - the daemon's own address
        f"{url}/v1/runs/{run}/files", headers={"Authorization": f"Bearer {token}"}
    )
    give_up_s = time.monotonic() + REACH_S
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer, tarfile.open(fileobj=answer, mode="r|") as tar:  # noqa: S310
                tar.extractall(target)  # noqa: S202 - the daemon has checked every name in it
                return
        except urllib.error.HTTPError as error:
            raise CannotStart("reach", f"the daemon at {url} did not hand out the job's files: {error}") from None
        except (OSError, tarfile.TarError) as error:
            if time.monotonic() >= give_up_s:
                raise CannotStart("reach", f"the pod cannot reach the daemon at {url} ({error})") from None
            time.sleep(1.0)


def placed(text: str, known: list[str]) -> str:
    return _PLACE.sub(lambda match: known[int(match[1])], text)


def prepared(env: dict[str, str], argv: list[str], worker: Worker) -> tuple[list[str], dict[str, str]]:
    """The worker's command and environment, with what only its pod knows."""
    own = {name: env.pop(name) for name in list(env) if name.startswith(_OWN)}
    if own.get("SWELL_POD_FILES"):
        fetch_files(own["SWELL_POD_FILES"], env["SWELL_URL"], env["SWELL_RUN"], env["SWELL_TOKEN"])
    journal = os.path.dirname(env.get("SWELL_JOURNAL", ""))
    for directory in (own["SWELL_POD_CWD"], env.get("SWELL_CHECKPOINT_DIR", ""), journal):
        if directory.startswith("/swell/"):  # Swell's own; a directory that a person named is not made for them
            os.makedirs(directory, exist_ok=True)
    if own.get("SWELL_POD_PATH"):
        env["PATH"] = f"{own['SWELL_POD_PATH']}:{env.get('PATH', '/usr/local/bin:/usr/bin:/bin')}"
    if own.get("SWELL_POD_ADDRESSES"):
        known = addresses(own["SWELL_POD_ADDRESSES"], worker)
        env = {name: placed(value, known) for name, value in env.items()}
        argv = [placed(word, known) for word in argv]
    return argv, env


def epochs_of(path: str) -> Json | None:
    """The run's own record, with times as seconds before now: another clock reads them."""
    noted = read_journal(path)
    if noted is None:
        return None
    now_s = boot_s()
    ago = {f"{name}_ago": round(max(0.0, now_s - noted[f"{name}_s"]), 3) for name in ("began", "at")}
    return {**{name: noted[name] for name in ("resumed", "done", "total", "unit")}, **ago}


def leased_worker(env: dict[str, str]) -> Worker:
    if not env.get("SWELL_POD_NODE"):
        return Worker()
    directory = os.path.dirname(env["SWELL_POD_UP"])
    renewal = Renewal(directory, env["SWELL_URL"], env["SWELL_RUN"], env["SWELL_POD_NODE"], env["SWELL_TOKEN"])
    return Worker(renewal, float(env["SWELL_POD_GRACE_S"]))


def main(argv: list[str]) -> int:
    env = dict(os.environ)
    worker = leased_worker(env)
    signal.signal(signal.SIGTERM, worker.ask)
    cwd, up, journal = env["SWELL_POD_CWD"], env["SWELL_POD_UP"], env.get("SWELL_JOURNAL", "")
    failed: Json = {}
    code = 127
    try:
        argv, env = prepared(env, argv, worker)
        if worker.asked:
            raise CannotStart("stopped", "stopped before it started")
        code = exit_code(worker.run(argv, env, cwd, up))
    except CannotStart as error:
        failed = error.failed
        print(f"swell: {error}", file=sys.stderr, flush=True)
    ended_s = round(time.time(), 3)  # tells which of several workers ended first
    record = {
        "code": code if code >= 0 and not failed else None,
        "signal": -code if code < 0 else None,
        "asked": worker.asked,
        "failed": failed,
        "at_s": ended_s,
        "epochs": epochs_of(journal) if env.get("SWELL_RANK") == "0" else None,
    }
    with contextlib.suppress(OSError), open(TERMINATION_LOG, "w", encoding="utf-8") as file:
        json.dump(record, file)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
