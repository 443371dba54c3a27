"""The transport to a machine over SSH: one connection, which is opened again after a loss, with growing delays.

No answer means `Unreachable`, whatever the cause: a server that refuses the login proves nothing about the runs there.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from swell.checkpoints.holder import Holder
from swell.core.ids import JobId, RunId
from swell.core.resources import Ssh
from swell.executors.request import PORT_BLOCKS, PORTS_FROM, PORTS_PER_RUN
from swell.executors.ssh.connection import CONNECT_S, Refusal, connect
from swell.executors.ssh.holder import FarHolder
from swell.executors.ssh.link import AgentLink, Greeting, Late, Pipe, Streams
from swell.executors.transport import Json, Look, Unreachable, tree_from_json
from swell.ports import JobTree, LogChunk, Piece
from swell.shim.uplink import socket_in

ANSWER_S = 20.0
"""A machine that has not answered a call by then is unreachable, and its connection is opened again."""
OPEN_S = 30.0
"""Time-out to connect, log in, and get the first message of the agent."""
FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 8.0
PART = 1024 * 1024
PROMISES = 1000
"""Maximum number of launches under way at the same time."""
_COMMAND = "exec {python} -ISs -c 'import sys;exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))'"
_PROGRAM = re.compile(r"[A-Za-z0-9_./+-]+")
Dial = Callable[[], Awaitable[Pipe]]

_spread = random.Random()  # noqa: S311 - so that machines are not all tried at the same moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """`need`: archives that the machine lacks; nothing was done. Else `library`: the path of the in-job library."""

    need: tuple[str, ...]
    library: str


class SshTransport:
    """See `executors.transport.Transport`. `dial` opens a pipe to the fixed command; tests bring their own."""

    def __init__(
        self,
        greeting: Greeting,
        dial: Dial,
        upstream: Callable[[], Awaitable[Streams]],
        *,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._greeting = greeting
        self._dial = dial
        self._upstream = upstream
        self._answer_s = answer_s
        self._heard: Callable[[RunId], None] = lambda _: None
        self._link: AgentLink | None = None
        self._connecting = asyncio.Lock()
        self._pause_s, self._not_before_s = FIRST_PAUSE_S, 0.0
        self._why = "it was not connected to yet"
        self._cluster = ""
        self._lease: Json = {}
        self._promised: dict[RunId, Json] = {}  # by run: the lease that held when its launch began
        self._bringing = asyncio.Lock()  # one at a time: two would write the same parts
        self._closed = False

    @property
    def cluster(self) -> str:
        """The directory of this cluster on the machine; known after the first connection."""
        if not self._cluster:
            raise Unreachable(self._why)
        return self._cluster

    @property
    def daemon_url(self) -> str:
        """Where trainings on the machine reach the daemon."""
        return f"unix:{socket_in(self.cluster)}"

    # ---- calls ----

    def promise(self, run: RunId) -> None:
        self._promised.pop(run, None)
        self._promised[run] = self._lease
        while len(self._promised) > PROMISES:
            del self._promised[next(iter(self._promised))]

    async def start(self, run: RunId, requests: Sequence[Json]) -> None:
        lease = self._promised.get(run, self._lease)
        if not lease:
            raise Unreachable("it was not looked at yet: there is no lease to start under")
        await self._call("start", run=str(run), requests=list(requests), lease=lease)

    async def look(self, runs: Mapping[RunId, Sequence[int]]) -> Look:
        told, _ = await self._call("look", runs={str(run): list(ranks) for run, ranks in runs.items()})
        running = {RunId.parse(run): tuple(ranks) for run, ranks in told["running"].items()}
        return Look(
            runs={run: told["runs"][str(run)] for run in runs},
            boot_id=told["boot"],
            boot_s=told["now"],
            running=running,
        )

    async def renew(self, boot_id: str, until_s: float | None) -> None:
        """Workers start under this lease from now on, whether or not the machine has received it."""
        self._lease = {"boot": boot_id, "until": until_s}
        await self._call("renew", boot=boot_id, until=until_s)

    async def stop(self, run: RunId, ranks: Sequence[int], *, kill: bool, whole: bool) -> None:
        await self._call("stop", run=str(run), ranks=list(ranks), kill=kill, whole=whole)

    async def force(self, run: RunId, ranks: Sequence[int]) -> None:
        await self._call("force", run=str(run), ranks=list(ranks))

    async def put(self, run: RunId, name: str, data: bytes) -> None:
        await self._call("put", data, run=str(run), name=name)

    async def get(self, run: RunId, name: str) -> bytes | None:
        there, data = await self._call("get", run=str(run), name=name)
        return data if there else None

    async def read_log(self, run: RunId, rank: int, offset: int, limit: int) -> LogChunk:
        told, data = await self._call("log", run=str(run), rank=rank, offset=offset, limit=limit)
        after = offset + len(data)
        return LogChunk(data=data, offset=offset, next_offset=after, end=told["end"], age_s=told["age_s"])

    async def log_since(self, run: RunId, rank: int, age_s: float) -> int:
        return int((await self._call("log_since", run=str(run), rank=rank, age_s=age_s))[0])

    async def remove(self, job: JobId) -> None:
        await self._call("remove", job=job)

    async def kept(self) -> Sequence[JobId]:
        return [int(job) for job in (await self._call("kept"))[0]]

    async def tree(self, job: JobId, below: str) -> JobTree:
        return tree_from_json((await self._call("tree", job=job, below=below))[0])

    async def read(self, job: JobId, below: str, path: str, offset: int, limit: int) -> Piece:
        told, data = await self._call("read", job=job, below=below, path=path, offset=offset, limit=limit)
        return Piece(data=data, size=told["size"], inode=told["inode"])

    async def ports(self, run: RunId, first: int) -> int:
        """The first of the run's ports on this machine: `first`, or the next ones that are free."""
        row = {"each": PORTS_PER_RUN, "low": PORTS_FROM, "blocks": PORT_BLOCKS}
        return int((await self._call("ports", run=str(run), first=first, **row))[0])

    async def inventory(self, runtime: str) -> Json:
        """`runtime`: the container runtime that the operator chose; empty: any known one."""
        found: Json = (await self._call("inventory", runtime=runtime))[0]
        return found

    # ---- files ----

    async def bring(self, name: str, file: IO[bytes]) -> None:
        """Bring an archive, once per machine and content. `name` is its hash."""
        async with self._bringing:
            if not (await self._call("have", name=name))[0]:
                await self._bring(name, file)

    async def _bring(self, name: str, file: IO[bytes]) -> None:
        part, offset = await asyncio.to_thread(file.read, PART), 0
        while True:
            following = await asyncio.to_thread(file.read, PART)
            await self._call("take", part, name=name, offset=offset, last=not following)
            if not following:
                return
            part, offset = following, offset + len(part)

    async def prepare(self, job: JobId, stamp: Json, *, files: str, library: str) -> Prepared:
        """Prepare the job's directories, with a copy of its snapshot and the in-job library. `files` and `library` are
        names of archives (`files` empty: none), which have to be brought first if they are missing."""
        told, _ = await self._call("prepare", job=job, stamp=stamp, files=files, library=library)
        return Prepared(need=tuple(told["need"]), library=str(told.get("library", "")))

    @property
    def holder(self) -> Holder:
        return FarHolder(self._call)

    # ---- the connection ----

    def listen(self, heard: Callable[[RunId], None]) -> None:
        self._heard = heard
        self._closed = False

    def close(self) -> None:
        self._closed = True
        if self._link is not None:
            self._link.close()
            self._link = None

    async def _call(self, call: str, data: bytes = b"", /, **arguments: Any) -> tuple[Any, bytes]:
        link = await self._connected()
        try:
            async with asyncio.timeout(self._answer_s):
                return await link.call(call, data, **arguments)
        except TimeoutError:
            link.close(f"no answer within {self._answer_s:g} s")
            raise Unreachable(link.lost) from None

    async def _connected(self) -> AgentLink:
        """The open link. Callers during an attempt to connect wait for it; soon after a failed attempt it raises
        `Unreachable` at once."""
        async with self._connecting:
            if self._closed:
                raise Unreachable("we have let go of it")
            if self._link is not None and not self._link.lost:
                return self._link
            if self._link is not None:
                self._why, self._link = self._link.lost, None
            if time.monotonic() < self._not_before_s:
                raise Unreachable(self._why)
            try:
                async with asyncio.timeout(OPEN_S):
                    self._link = await self._opened()
            except (OSError, TimeoutError) as error:
                self._back_off(error)
                raise Unreachable(self._why) from error
            self._pause_s = FIRST_PAUSE_S
            return self._link

    def _back_off(self, error: Exception) -> None:
        self._why = str(error) or f"no answer within {OPEN_S:g} s"
        self._not_before_s = time.monotonic() + self._pause_s * _spread.uniform(0.5, 1.0)
        self._pause_s = min(MAX_PAUSE_S, 2 * self._pause_s)

    async def _opened(self) -> AgentLink:
        pipe = await self._dial()
        link = AgentLink(pipe, self._greeting.epoch, self._hint, self._upstream)
        try:
            hello = await link.open(self._greeting)
        except BaseException:
            link.close()
            raise
        self._cluster = str(hello["cluster"])
        return link

    def _hint(self, run: str) -> None:
        try:
            self._heard(RunId.parse(run))
        except ValueError:
            return


def over_ssh(ssh: Ssh) -> Dial:
    """Dials one connection with one session for the fixed command. That command contains no text of a user; the path
    of the interpreter, which the operator declared, is plain."""

    async def dial() -> Pipe:
        if not _PROGRAM.fullmatch(ssh.python):
            raise Refusal(f"python: {ssh.python!r} is no plain path of a program; leave out spaces and quotes")
        connection = await connect(ssh, timeout_s=CONNECT_S)
        try:
            process = await connection.create_process(_COMMAND.format(python=ssh.python), encoding=None)
        except BaseException as error:
            connection.abort()
            if isinstance(error, OSError | asyncio.CancelledError):
                raise
            raise Unreachable(f"{ssh.host} opens no session: {error}") from error

        async def why() -> str:
            said: bytes = await process.stderr.read(500)
            return said.decode("utf-8", "replace").strip()

        return Pipe(reader=process.stdout, writer=process.stdin, close=connection.abort, why=why)

    return dial


__all__ = ["Late", "SshTransport", "over_ssh"]
