"""How a machine is reached: the interface below `hosts`. The local transport calls the functions of `shim.host` in
threads; over SSH an agent calls them on the machine. Every call names run and rank; none depends on an earlier answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from swell.checkpoints.holder import Holder
from swell.checkpoints.in_process import InProcess
from swell.core.ids import JobId, RunId
from swell.ports import JobFile, JobTree, LogChunk, Piece
from swell.shim.host import Host, bind_notify

Json = dict[str, Any]


class Unreachable(OSError):
    """The machine did not answer: the request may have been carried out or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A machine's answer: about the requested runs, and about itself."""

    runs: Mapping[RunId, Json]  # see `ask.look`
    boot_id: str = ""
    boot_s: float = 0.0  # its CLOCK_BOOTTIME, read before anything else
    running: Mapping[RunId, tuple[int, ...]] = field(default_factory=dict)  # ranks of all runs with a process there


class Transport(Protocol):
    """Every method raises `Unreachable` if the machine does not answer, and another OSError if it refuses."""

    def promise(self, run: RunId) -> None:
        """The run is being launched: its workers start under the present lease, however late the request arrives. A run
        that was given up meanwhile must not start under a newer lease."""
        ...

    async def start(self, run: RunId, requests: Sequence[Json]) -> None:
        """Deliver the requests and ask for a shim each. If this is refused, no shim was requested."""
        ...

    async def look(self, runs: Mapping[RunId, Sequence[int]]) -> Look:
        """Look at these ranks of these runs."""
        ...

    async def renew(self, boot_id: str, until_s: float | None) -> None:
        """Let the runs of this machine continue alone until then, in its own clock; None: without a time limit."""
        ...

    async def stop(self, run: RunId, ranks: Sequence[int], *, kill: bool, whole: bool) -> None:
        """Stop these ranks. `whole`: the run itself has to stop, so no worker of it may start any more."""
        ...

    async def force(self, run: RunId, ranks: Sequence[int]) -> None:
        """Kill all processes of these workers directly, because their shims do not answer. See `ask.force`."""
        ...

    async def put(self, run: RunId, name: str, data: bytes) -> None:
        """Write a file of the run's directory atomically. It is executable, because host discovery is a script."""
        ...

    async def get(self, run: RunId, name: str) -> bytes | None: ...

    async def read_log(self, run: RunId, rank: int, offset: int, limit: int) -> LogChunk: ...

    async def log_since(self, run: RunId, rank: int, age_s: float) -> int:
        """See `Executor.log_since`."""
        ...

    async def remove(self, job: JobId) -> None:
        """Delete the job's files here. Raises OSError if not all could be deleted."""
        ...

    async def kept(self) -> Sequence[JobId]:
        """Jobs that have files here."""
        ...

    async def tree(self, job: JobId, below: str) -> JobTree:
        """Plain files of the job's working copy, in this directory of it."""
        ...

    async def read(self, job: JobId, below: str, path: str, offset: int, limit: int) -> Piece:
        """Read a piece of a file that `tree` lists. It follows no links and reads nothing outside."""
        ...

    @property
    def holder(self) -> Holder:
        """The holder of checkpoint directories there."""
        ...

    def listen(self, heard: Callable[[RunId], None]) -> None:
        """Call `heard` whenever something has happened to a run. Hints may be lost, so polling is needed as well."""
        ...

    def close(self) -> None:
        """Disconnect. Runs continue."""
        ...


def tree_from_json(told: Json) -> JobTree:
    files = (JobFile(path=path, size=size, mtime_ns=at, mode=mode) for path, size, at, mode in told["files"])
    return JobTree(files=tuple(files), skipped=told["skipped"], whole=told["whole"])


class LocalTransport:
    """This machine. Blocking work runs in threads, so that a slow disk never blocks the daemon's loop."""

    def __init__(self, runs_dir: Path, job_dirs: Sequence[Path] = ()) -> None:
        self._host = Host(str(runs_dir), map(str, job_dirs))
        self._socket: socket.socket | None = None

    def promise(self, run: RunId) -> None:
        """Runs of the daemon's own machine have no lease."""

    async def start(self, run: RunId, requests: Sequence[Json]) -> None:
        await asyncio.to_thread(self._host.start, str(run), list(requests))

    async def look(self, runs: Mapping[RunId, Sequence[int]]) -> Look:
        looks = await asyncio.to_thread(self._host.look, {str(run): list(ranks) for run, ranks in runs.items()})
        return Look(runs={run: looks[str(run)] for run in runs})

    async def renew(self, boot_id: str, until_s: float | None) -> None:
        """Runs of the daemon's own machine have no lease."""

    async def stop(self, run: RunId, ranks: Sequence[int], *, kill: bool, whole: bool) -> None:
        await asyncio.to_thread(self._host.stop, str(run), list(ranks), kill, whole)

    async def force(self, run: RunId, ranks: Sequence[int]) -> None:
        await asyncio.to_thread(self._host.force, str(run), list(ranks))

    async def put(self, run: RunId, name: str, data: bytes) -> None:
        await asyncio.to_thread(self._host.put, str(run), name, data)

    async def get(self, run: RunId, name: str) -> bytes | None:
        return await asyncio.to_thread(self._host.get, str(run), name)

    async def read_log(self, run: RunId, rank: int, offset: int, limit: int) -> LogChunk:
        data, end, age_s = await asyncio.to_thread(self._host.read_log, str(run), rank, offset, limit)
        return LogChunk(data=data, offset=offset, next_offset=offset + len(data), end=end, age_s=age_s)

    async def log_since(self, run: RunId, rank: int, age_s: float) -> int:
        return await asyncio.to_thread(self._host.log_since, str(run), rank, age_s)

    async def remove(self, job: JobId) -> None:
        await asyncio.to_thread(self._host.remove, job)

    async def kept(self) -> Sequence[JobId]:
        return await asyncio.to_thread(self._host.kept)

    async def tree(self, job: JobId, below: str) -> JobTree:
        return tree_from_json(await asyncio.to_thread(self._host.working_copies.tree, job, below))

    async def read(self, job: JobId, below: str, path: str, offset: int, limit: int) -> Piece:
        read = self._host.working_copies.read
        data, size, inode = await asyncio.to_thread(read, job, below, path, offset, limit)
        return Piece(data=data, size=size, inode=inode)

    @property
    def holder(self) -> Holder:
        return InProcess(self._host.checkpoints)

    def listen(self, heard: Callable[[RunId], None]) -> None:
        self._host.nursery.warm()
        self._socket = bind_notify(self._host.notify_path)
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
        self._host.nursery.close()
