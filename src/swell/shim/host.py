"""What a machine does when it is asked about runs: the same functions whether the daemon calls them in its own process
(`executors.transport`) or through the agent on another machine. Blocking; called from several threads at once.

Every call names run and rank, and nothing depends on an answer: each call may be repeated.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from swell.shim import ask
from swell.shim.checkpoints import Checkpoints
from swell.shim.environment import base_environment, completed_request
from swell.shim.files import Json
from swell.shim.leftovers import Leftovers
from swell.shim.log_times import begin_of
from swell.shim.nursery import Nursery
from swell.shim.ports import ports_of
from swell.shim.working_copies import WorkingCopies

MAX_LOG_READ = 4 * 1024 * 1024
"""So much of a log at once, whatever was asked: memory stays flat."""


class Host:
    """`job_dirs` each hold one directory per job, which goes with the job; the first has the working copies."""

    def __init__(self, runs_dir: str, job_dirs: Iterable[str] = (), environ: Mapping[str, str] = os.environ) -> None:
        self.runs_dir = runs_dir
        self.notify_path = os.path.join(runs_dir, "notify")
        self.nursery = Nursery()
        own = tuple(job_dirs)
        self._leftovers = Leftovers(runs_dir=Path(runs_dir), job_dirs=tuple(map(Path, own)))
        self.checkpoints = Checkpoints(os.path.join(os.path.dirname(runs_dir), "set-aside"))
        self.working_copies = WorkingCopies(own[0] if own else os.path.join(runs_dir, "none"))
        self._base_env = base_environment(environ)
        self._over: set[str] = set()  # runs of which no process is left
        os.makedirs(runs_dir, mode=0o700, exist_ok=True)

    def directory(self, run: str) -> str:
        return os.path.join(self.runs_dir, run)

    def start(self, run: str, requests: list[Json]) -> None:
        """All requests are written before the first shim starts: what cannot be written fails the gang as a whole."""
        folders = [os.path.join(self.directory(run), str(request["rank"])) for request in requests]
        asked = 0
        try:
            for folder, request in zip(folders, requests):
                write(os.path.join(folder, "request.json"), self._completed(request))
            for folder in folders:
                self.nursery.ask(folder)
                asked += 1
        except OSError:
            if asked:  # some may run: those that are missing are asked for again
                return
            for folder in folders:  # a shim without a request does nothing
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, "request.json"))
            raise

    def _completed(self, request: Json) -> bytes:
        completed = completed_request(self._base_env, request)
        return json.dumps({**completed, "notify": self.notify_path}).encode()

    def look(self, runs: Mapping[str, list[int]]) -> dict[str, Json]:
        return {run: ask.look(self.directory(run), list(ranks)) for run, ranks in runs.items()}

    def running(self) -> dict[str, list[int]]:
        """Ranks of every run here that has, or may have, a process."""
        found = {}
        for run in os.listdir(self.runs_dir):
            if run in self._over or "." not in run or run.startswith("."):
                continue
            ranks = self._ranks(run)
            if living := [rank for rank in ranks if not ask.is_over(os.path.join(self.directory(run), str(rank)))]:
                found[run] = living
            elif ranks:
                self._over.add(run)
        return found

    def _ranks(self, run: str) -> list[int]:
        """Those that were claimed."""
        folder = self.directory(run)
        with contextlib.suppress(OSError):
            names = [name for name in os.listdir(folder) if name.isdigit()]
            return sorted(int(name) for name in names if os.path.exists(os.path.join(folder, name, "claim")))
        return []

    def stop(self, run: str, ranks: list[int], kill: bool, whole: bool) -> None:
        directory = self.directory(run)
        if whole:
            ask.stop(directory, ranks, kill=kill)
            return
        for rank in ranks:
            ask.stop_worker(f"{directory}/{rank}", kill=kill)

    def force(self, run: str, ranks: list[int]) -> None:
        ask.force(self.directory(run), ranks)

    def put(self, run: str, name: str, data: bytes) -> None:
        write(os.path.join(self.directory(run), name), data, 0o700)

    def get(self, run: str, name: str) -> bytes | None:
        try:
            with open(os.path.join(self.directory(run), name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def read_log(self, run: str, rank: int, offset: int, limit: int) -> tuple[bytes, bool, float]:
        """Bytes, whether nothing follows them ever, and how long ago the log last grew. Whether the worker is over is
        asked first: what is read afterwards is then all there will ever be."""
        folder = os.path.join(self.directory(run), str(rank))
        over = ask.is_over(folder)
        data, size, age_s = b"", 0, 0.0
        with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, "log"), "rb", buffering=0) as log:
            found = os.fstat(log.fileno())
            size, age_s = found.st_size, max(0.0, time.time() - found.st_mtime)
            data = os.pread(log.fileno(), max(0, min(limit, MAX_LOG_READ)), offset)
        return data, over and offset + len(data) >= size, age_s

    def log_since(self, run: str, rank: int, age_s: float) -> int:
        return begin_of(os.path.join(self.directory(run), str(rank)), age_s)

    def ports(self, run: str, first: int, each: int, low: int, blocks: int) -> int:
        """The first of the run's ports here."""
        return ports_of(self.directory(run), first, each, low, blocks)

    def remove(self, job: int) -> None:
        self._leftovers.delete(job)

    def kept(self) -> list[int]:
        return self._leftovers.kept()


def bind_notify(path: str) -> socket.socket:
    """A datagram socket at `path`, taken over from whoever had it. By way of the directory: long paths do not fit."""
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.setblocking(False)
    bind_private(heard, path)
    return heard


def bind_private(sock: socket.socket, path: str) -> None:
    """Bind to `path`, for this user only, in place of whatever was there."""
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    try:
        name = os.path.basename(path)
        fresh = f"/proc/self/fd/{folder}/.{name}.{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)
        sock.bind(fresh)
        os.chmod(fresh, 0o600)
        os.rename(fresh, f"/proc/self/fd/{folder}/{name}")
    finally:
        os.close(folder)


def write(path: str, data: bytes, mode: int = 0o600) -> None:
    """Whole or not at all. Not synced: after a power cut nothing runs, and the claim, which is synced, says so."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    temporary = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{secrets.token_hex(4)}")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(fd, "wb") as file:
            file.write(data)
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
