"""Starts training scripts quickly: one process has the heavy imports done and forks a fresh script on demand.

As a script (`stable.py MODULE…`) it is that process; `Stable` is the test's handle on it. Each forked worker gets the
argv, environment and directory of a `ports.Worker`, a session of its own and a log file, like a real launch.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def serve(modules: Sequence[str]) -> None:
    for name in modules:
        importlib.import_module(name)
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    begun = b""  # of an order. Not sys.stdin, which would hide a second order from select
    while True:
        ready, _, _ = select.select([0], [], [], 0.005)
        if ready:
            read = os.read(0, 1 << 16)
            if not read:
                return
            *orders, begun = (begun + read).split(b"\n")
            for order in map(json.loads, orders):
                _say({"key": order["key"], "pid": _fork(order)})
        _reap()


def _fork(order: Mapping[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = _become(order)
    finally:
        atexit._run_exitfuncs()
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(code)


def _become(order: Mapping[str, Any]) -> int:
    os.setsid()
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number in (1, 2):
        os.dup2(log, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # where does it hang? `Stable.ask_where`
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    sys.argv = order["argv"]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        return 1
    return 0


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            _say({"pid": pid, "code": os.waitstatus_to_exitcode(status)})


def _say(what: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


class Stable:
    """`with Stable(python, modules, path) as stable: pid = stable.start(...); code = stable.wait(pid)`."""

    def __init__(self, python: str, modules: Sequence[str], path: Sequence[Path]) -> None:
        # Not the choice of numpy's kernels: a job does not have it, and sums would differ in their last digit.
        own = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
        env = {**own, "PYTHONPATH": ":".join(map(str, path)), "OMP_NUM_THREADS": "1"}
        argv = [python, __file__, *modules]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self._changed = threading.Condition()
        self._pids: dict[int, int] = {}
        self._codes: dict[int, int] = {}
        self._keys = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Stable:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in set(self._pids.values()) - set(self._codes):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def start(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path) -> int:
        """Starts a Python script (argv[0] is its path); returns the process id."""
        with self._changed:
            self._keys += 1
            key = self._keys
            order = {"key": key, "argv": list(argv), "env": dict(env), "cwd": str(cwd), "log": str(log)}
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            assert self._changed.wait_for(lambda: key in self._pids, 30)
            return self._pids[key]

    def wait(self, pid: int, timeout_s: float) -> int | None:
        """Exit code, negative for a signal; None if it still runs."""
        with self._changed:
            self._changed.wait_for(lambda: pid in self._codes, timeout_s)
            return self._codes.get(pid)

    def ask_where(self, pid: int) -> None:
        """Have a process write the stacks of its threads to its log."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            with self._changed:
                if "code" in told:
                    self._codes[told["pid"]] = told["code"]
                else:
                    self._codes.pop(told["pid"], None)  # the number has come round again
                    self._pids[told["key"]] = told["pid"]
                self._changed.notify_all()


if __name__ == "__main__":
    serve(sys.argv[1:])
