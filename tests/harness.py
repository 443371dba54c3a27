"""A real daemon as a process of its own, for tests: start it, talk to it over HTTP, kill it, start it again."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
READY_S = 90.0


class Daemon:
    """`python -m swell serve` on its own home directory."""

    def __init__(
        self, home: Path, gpus: int = 4, args: tuple[str, ...] = (), env: Mapping[str, str] | None = None
    ) -> None:
        self.home = home
        self.args = ("--gpus", str(gpus), *args)
        self.env = dict(env or {})
        self.process: subprocess.Popen[bytes] | None = None
        self._connection: http.client.HTTPConnection | None = None

    def start(self) -> float:
        """Start and wait until it answers; returns how long that took."""
        began = time.monotonic()
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "daemon.json").unlink(missing_ok=True)
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SWELL_HOME": str(self.home), **self.env}
        with (self.home / "serve.out").open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "swell", "serve", "--home", str(self.home), *self.args],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        eventually(self._answers, READY_S, what=f"the daemon answers; it said: {self.said()}")
        return time.monotonic() - began

    def said(self) -> str:
        with contextlib.suppress(OSError):
            return (self.home / "serve.out").read_text(errors="replace")[-2000:]
        return ""

    def _answers(self) -> bool:
        if self.process is not None and self.process.poll() is not None:
            raise AssertionError(f"the daemon ended with {self.process.returncode}: {self.said()}")
        try:
            return bool(self.get("/v1/health")["ready"])
        except (OSError, http.client.HTTPException, ValueError, KeyError, AssertionError):
            return False

    def kill(self) -> None:
        """SIGKILL, as a power cut would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.hang_up()

    def stop(self) -> int:
        """SIGTERM: graceful; jobs go on."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.hang_up()
        return self.process.wait(timeout=20)

    def hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    @property
    def address(self) -> tuple[str, int]:
        url = urlsplit(json.loads((self.home / "daemon.json").read_text())["url"])
        return str(url.hostname), int(url.port or 0)

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    def request(
        self, method: str, path: str, body: object | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """(status, decoded body). A connection is kept; a dead one is replaced once."""
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **(headers or {})}
        for attempt in (1, 2):
            try:
                if self._connection is None:
                    self._connection = http.client.HTTPConnection(*self.address, timeout=30)
                self._connection.request(method, path, body=data, headers=sent)
                answer = self._connection.getresponse()
                text = answer.read()
                return answer.status, json.loads(text) if text else None
            except (OSError, http.client.HTTPException):
                self.hang_up()
                if attempt == 2:
                    raise
        raise AssertionError("not reached")

    def tell(self) -> None:
        """Print what a failed test leaves behind: the daemon's output, its jobs and its last events."""
        print(f"\n--- the daemon of {self.home} printed:\n{self.said()}")
        for path in ("/v1/health", "/v1/jobs", "/v1/events?follow=false&last=40"):
            with contextlib.suppress(Exception):
                print(f"--- {path}: {json.dumps(self.request('GET', path)[1])[-4000:]}")

    def submit(self, **job: object) -> list[int]:
        """Ids of the submitted job, or jobs if it is an array."""
        return [int(made["id"]) for made in self.post("/v1/jobs", job)["jobs"]]

    def get(self, path: str) -> Any:
        status, body = self.request("GET", path)
        assert status == 200, (path, status, body)
        return body

    def post(self, path: str, body: object | None = None, headers: Mapping[str, str] | None = None) -> Any:
        status, answer = self.request("POST", path, body, headers)
        assert 200 <= status < 300, (path, status, answer)
        return answer


@contextlib.contextmanager
def daemon(home: Path, **options: Any) -> Iterator[Daemon]:
    """A running daemon; stopped, and everything it started ended, when the block is left."""
    served = Daemon(home, **options)
    try:
        served.start()
        yield served
    except BaseException:
        served.tell()
        raise
    finally:
        if served.process is not None and served.process.poll() is None:
            served.kill()
        served.hang_up()
        end_runs(home)


def marked_processes(home: Path) -> list[int]:
    """Processes that belong to a run of this home, told by their environment; zombies do not count."""
    found = []
    needle = str(home).encode()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environ = (path / "environ").read_bytes()
            if b"SWELL_RUN=" in environ and needle in environ:
                found.append(int(path.name))
    return found


def end_runs(home: Path) -> None:
    for pid in marked_processes(home):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def eventually(condition: Callable[[], object], timeout_s: float, *, what: str = "", every_s: float = 0.02) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what or condition}")
        time.sleep(every_s)
