"""Starts a daemon on an empty home again and again, each time with a fault at the next operation on files, then once
more without. Prints what became of both starts, a JSON line for each place. A process of its own: it forks.

    python first_start.py DIRECTORY kill|full
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import http.client
import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from swell import serve
from swell.cli.main import guarded
from swell.config import load_config

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
READY_S = 30.0


class Faults:
    """Counts the places where files of the home are touched; at number `at` the process dies, or the disk is full."""

    def __init__(self, home: Path, kind: str, at: int) -> None:
        self._home, self._kind, self._at = str(home), kind, at
        self._seen = 0

    def __call__(self, what: str, path: object) -> None:
        if not isinstance(path, str | os.PathLike) or not str(path).startswith(self._home):
            return
        self._seen += 1
        if self._seen == self._at:
            (Path(self._home + ".place")).write_text(f"{what} {str(path).removeprefix(self._home)}")
            if self._kind == "kill":
                os._exit(137)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def install(self) -> None:
        patched = ((os, "mkdir"), (os, "rename"), (os, "replace"))
        for module, name in patched:
            setattr(module, name, self._around(name, getattr(module, name)))
        os.fsync = self._fsync(os.fsync)
        os.open = self._open(os.open, lambda args: bool(args[1] & WRITING))
        opened = self._open(io.open, lambda args: len(args) > 1 and not set(args[1]).isdisjoint("wax+"))
        builtins.open = io.open = opened

    def _around(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def patched(path: object, *args: Any, **options: Any) -> Any:
            self(f"before {name}", path)
            done = real(path, *args, **options)
            self(f"after {name}", path)
            return done

        return patched

    def _open(self, real: Callable[..., Any], writes: Callable[[tuple[Any, ...]], bool]) -> Callable[..., Any]:
        def patched(*args: Any, **options: Any) -> Any:
            if not writes(args) or self._skips(args[0]):
                return real(*args, **options)
            self("before open", args[0])
            done = real(*args, **options)
            self("after open", args[0])
            return done

        return patched

    def _skips(self, path: object) -> bool:
        """Files of the library are all alike: the first stands for them."""
        return "/swell/" in str(path).partition("/sdk/")[2]

    def _fsync(self, real: Callable[..., None]) -> Callable[..., None]:
        def patched(fd: Any) -> None:
            path = os.readlink(f"/proc/self/fd/{fd}")
            if not self._skips(path):
                self("before fsync", path)
            real(fd)

        return patched


def started(home: Path, faults: Faults | None = None) -> int:
    """The process id of a daemon in a fork."""
    child = os.fork()
    if child:
        return child
    with contextlib.suppress(BaseException):
        out = os.open(f"{home}.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        config = load_config(home, {"gpus": 1})
        if faults is not None:
            faults.install()
        guarded(lambda: serve.main(config))
    os._exit(1)


def outcome(home: Path, child: int) -> dict[str, Any]:
    """`ready` with the answers to requests without and with the token, else what it said and ended with."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            said = Path(f"{home}.out").read_text(errors="replace").strip()
            return {"ready": False, "code": os.waitstatus_to_exitcode(status), "said": said.splitlines()[-1:]}
        with contextlib.suppress(OSError, ValueError, KeyError, http.client.HTTPException):
            port = int(json.loads((home / "daemon.json").read_text())["url"].rpartition(":")[2])
            found = dict(answers(home, port))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return {"ready": True, **found}
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return {"ready": False, "code": None, "said": ["it neither answers nor ends"]}


def answers(home: Path, port: int) -> Iterator[tuple[str, int]]:
    token = (home / "token").read_text()
    for name, header in (("without", None), ("empty", "Bearer "), ("with", f"Bearer {token}")):
        yield name, status(port, header)


def status(port: int, authorization: str | None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {} if authorization is None else {"Authorization": authorization}
    with contextlib.closing(connection):
        connection.request("POST", "/v1/jobs", body=b'{"command": "true", "gpus": 0}', headers=headers)
        return connection.getresponse().status


def main(directory: Path, kind: str) -> None:
    for at in range(1, 1000):
        home = directory / f"{kind}-{at}" / "home"
        home.parent.mkdir(parents=True)
        faults = Faults(home, kind, at)
        first = outcome(home, started(home, faults))
        place = Path(f"{home}.place")
        if not place.exists():
            return
        second = outcome(home, started(home))
        print(json.dumps({"place": place.read_text(), "first": first, "second": second}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
