"""How a machine is reached: the seam below `hosts`. The local one calls the shim's functions in threads; one over SSH
would run the same files on the other side. Everything is told by run and rank; nothing depends on an answer."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from swell.core.ids import JobId, RunId
from swell.executors.leftovers import Leftovers
from swell.ports import LogChunk
from swell.shim import ask, shim

Json = dict[str, Any]
MAX_LOG_READ = 4 * 1024 * 1024
"""So much of a log at once, whatever was asked: memory stays flat."""
NURSERY = (sys.executable, "-ISs", shim.__file__, "nursery")
ANSWER_S = 10.0
"""The nursery answers within milliseconds; one that has not by then is replaced."""


_PROGRAMS = frozenset(["PATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH"])
"""Which programs and libraries there are; so do all that begin with CONDA_. A job that brings its submitter's gets
none of the daemon's."""
_PASSED_ON = _PROGRAMS | frozenset(
    [
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
    ]
)
_PASSED_ON_PREFIXES = ("LC_", "CONDA_", "NVIDIA_", "NCCL_", "XDG_", "HF_")


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What every worker on this machine finds, beneath its own: where things are, in which language. Nothing else of
    the daemon's environment, which may hold its secrets."""
    return {
        name: value for name, value in environ.items() if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }


def completed_environment(base: Mapping[str, str], request: Json) -> dict[str, str]:
    """What the worker of this request finds: its own environment over that of its machine."""
    beneath = base
    if request.get("shell_env"):
        beneath = {n: v for n, v in base.items() if n not in _PROGRAMS and not n.startswith("CONDA_")}
    env = {**beneath, **request["env"]}
    if first := request.get("path_first"):
        env["PATH"] = ":".join((*first, env.get("PATH", os.defpath)))
    return env


class Unreachable(OSError):
    """The machine did not answer: what was asked of it may have happened or not."""


class Transport(Protocol):
    """Every method raises `Unreachable` if the machine does not answer, and another OSError if it answers: no."""

    async def start(self, run: RunId, requests: Sequence[Json]) -> None:
        """Deliver the requests and ask for a shim each. If it is refused, no shim was asked for."""
        ...

    async def look(self, runs: Mapping[RunId, Sequence[int]]) -> Mapping[RunId, Json]:
        """See `ask.look`, for each run and its ranks."""
        ...

    async def stop(self, run: RunId, ranks: Sequence[int], *, kill: bool, whole: bool) -> None:
        """`whole`: the run was asked to stop, and nothing of it may start any more; else only these ranks."""
        ...

    async def force(self, run: RunId, ranks: Sequence[int]) -> None:
        """Kill all that belongs to these workers past shims that do not answer. See `ask.force`."""
        ...

    async def put(self, run: RunId, name: str, data: bytes) -> None:
        """Write a file of the run's directory, whole. Executable: host discovery is a script."""
        ...

    async def get(self, run: RunId, name: str) -> bytes | None: ...

    async def read_log(self, run: RunId, rank: int, offset: int, limit: int) -> LogChunk: ...

    async def remove(self, job: JobId) -> None:
        """Delete what is kept of the job here. Raises OSError if not all could be deleted."""
        ...

    async def kept(self) -> Sequence[JobId]:
        """Jobs of which something is kept here."""
        ...

    def listen(self, heard: Callable[[RunId], None]) -> None:
        """Call `heard` whenever something happened to a run. Hints may be lost; polling is the safety net."""
        ...

    def close(self) -> None:
        """Let go. What runs goes on."""
        ...


class Nursery:
    """The fork-server that makes shims; started when needed, again when it died. It ends when we are gone.

    It answers each request. One that does not (stopped, or stuck) is killed and replaced: the shims that it made live
    on, and a request that it may still have begun does no harm, since a worker can be claimed only once."""

    def __init__(self, answer_s: float = ANSWER_S) -> None:
        self._answer_s = answer_s
        self._lock = threading.Lock()
        self._link: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, directory: Path) -> None:
        """Raises OSError if no shim can be made: never the fault of the job."""
        with self._lock:
            for _ in range(2):
                link = self._link or self._begin()
                try:
                    link.send(os.fsencode(directory))
                    code = int(link.recv(64) or errno.EPIPE)
                except (OSError, ValueError):
                    self._end(kill=True)
                    continue
                if code == errno.EPIPE:
                    self._end(kill=True)
                elif code:
                    raise OSError(code, os.strerror(code))
                else:
                    return
            raise OSError("the process that starts jobs does not answer; see whether the machine has memory left")

    def warm(self) -> None:
        with self._lock:
            if self._link is None:
                self._begin()

    def close(self) -> None:
        with self._lock:
            self._end()

    def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(self._answer_s)
        with theirs:
            # Of our own environment it gets nothing but the PATH: jobs have theirs in their requests.
            self._process = subprocess.Popen(
                NURSERY,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={"PATH": os.defpath},
            )
        self._link = ours
        return ours

    def _end(self, *, kill: bool = False) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._process is not None:
            if kill:
                self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5.0)
            if self._process.poll() is None:  # at our own end: a stopped one would stay for ever
                self._process.kill()
            self._process = None


class LocalTransport:
    """This machine. Blocking work happens in threads, so that a slow disk never stops the daemon's loop."""

    def __init__(self, runs_dir: Path, job_dirs: Sequence[Path] = ()) -> None:
        self.runs_dir = runs_dir
        self._leftovers = Leftovers(runs_dir=runs_dir, job_dirs=tuple(job_dirs))
        self._base_env = base_environment(os.environ)
        self._nursery = Nursery()
        self._socket: socket.socket | None = None
        runs_dir.mkdir(mode=0o700, parents=True, exist_ok=True)

    def directory(self, run: RunId) -> Path:
        return self.runs_dir / str(run)

    @property
    def notify_path(self) -> Path:
        return self.runs_dir / "notify"

    async def start(self, run: RunId, requests: Sequence[Json]) -> None:
        await asyncio.to_thread(self._start, run, requests)

    def _start(self, run: RunId, requests: Sequence[Json]) -> None:
        """All requests are written before the first shim starts: what cannot be written fails the gang as a whole."""
        folders = [self.directory(run) / str(request["rank"]) for request in requests]
        asked = 0
        try:
            for folder, request in zip(folders, requests, strict=True):
                _write(folder / "request.json", self._completed(request))
            for folder in folders:
                self._nursery.ask(folder)
                asked += 1
        except OSError:
            if asked:  # some may run: those that are missing are asked for again
                return
            for folder in folders:  # a shim without a request does nothing
                (folder / "request.json").unlink(missing_ok=True)
            raise

    def _completed(self, request: Json) -> bytes:
        env = completed_environment(self._base_env, request)
        return json.dumps({**request, "env": env, "notify": str(self.notify_path)}).encode()

    async def look(self, runs: Mapping[RunId, Sequence[int]]) -> Mapping[RunId, Json]:
        return await asyncio.to_thread(self._look, runs)

    def _look(self, runs: Mapping[RunId, Sequence[int]]) -> Mapping[RunId, Json]:
        return {run: ask.look(str(self.directory(run)), list(ranks)) for run, ranks in runs.items()}

    async def stop(self, run: RunId, ranks: Sequence[int], *, kill: bool, whole: bool) -> None:
        await asyncio.to_thread(self._stop, run, ranks, kill, whole)

    def _stop(self, run: RunId, ranks: Sequence[int], kill: bool, whole: bool) -> None:
        directory = str(self.directory(run))
        if whole:
            ask.stop(directory, list(ranks), kill=kill)
            return
        for rank in ranks:
            ask.stop_worker(f"{directory}/{rank}", kill=kill)

    async def force(self, run: RunId, ranks: Sequence[int]) -> None:
        await asyncio.to_thread(ask.force, str(self.directory(run)), list(ranks))

    async def put(self, run: RunId, name: str, data: bytes) -> None:
        await asyncio.to_thread(_write, self.directory(run) / name, data, 0o700)

    async def get(self, run: RunId, name: str) -> bytes | None:
        return await asyncio.to_thread(_read, self.directory(run) / name)

    async def read_log(self, run: RunId, rank: int, offset: int, limit: int) -> LogChunk:
        return await asyncio.to_thread(self._read_log, run, rank, offset, limit)

    def _read_log(self, run: RunId, rank: int, offset: int, limit: int) -> LogChunk:
        """Whether the worker is over is asked first: what is read afterwards is then all there will ever be."""
        folder = self.directory(run) / str(rank)
        over = ask.is_over(str(folder))
        data, size, age_s = b"", 0, 0.0
        with contextlib.suppress(FileNotFoundError), (folder / "log").open("rb", buffering=0) as log:
            found = os.fstat(log.fileno())
            size, age_s = found.st_size, max(0.0, time.time() - found.st_mtime)
            data = os.pread(log.fileno(), max(0, min(limit, MAX_LOG_READ)), offset)
        after = offset + len(data)
        return LogChunk(data=data, offset=offset, next_offset=after, end=over and after >= size, age_s=age_s)

    async def remove(self, job: JobId) -> None:
        await asyncio.to_thread(self._leftovers.delete, job)

    async def kept(self) -> Sequence[JobId]:
        return await asyncio.to_thread(self._leftovers.kept)

    def listen(self, heard: Callable[[RunId], None]) -> None:
        self._nursery.warm()
        self._socket = _bind(self.notify_path)
        asyncio.get_running_loop().add_reader(self._socket, self._hear, heard)

    def _hear(self, heard: Callable[[RunId], None]) -> None:
        assert self._socket is not None
        while True:
            try:
                text = self._socket.recv(256).decode("ascii", "replace")
            except BlockingIOError:
                return
            with contextlib.suppress(ValueError):
                heard(RunId.parse(text.partition("/")[0]))

    def close(self) -> None:
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        self._nursery.close()


def _bind(path: Path) -> socket.socket:
    """A datagram socket at `path`, taken over from whoever had it. By way of the directory: long paths do not fit."""
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.setblocking(False)
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        short = Path(f"/proc/self/fd/{folder}")
        fresh = short / f".{path.name}.{os.getpid()}"
        fresh.unlink(missing_ok=True)
        heard.bind(str(fresh))
        fresh.chmod(0o600)
        fresh.rename(short / path.name)
    finally:
        os.close(folder)
    return heard


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _write(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Whole or not at all. Not synced: after a power cut nothing runs, and the claim, which is synced, says so."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        temporary.touch(mode=mode)
        temporary.write_bytes(data)
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
