"""One open connection to an agent, over any kind of pipe: calls and their answers, hints, streams of trainings.

A lost link stays lost: calls that wait for an answer fail, and its owner opens another.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from swell.executors.ssh.bundle import agent_archive, boot_program
from swell.executors.transport import Json, Unreachable
from swell.shim.wire import HEAD, PROTOCOL, Broken, decoded, frame, sizes

log = logging.getLogger(__name__)

CHUNK = 64 * 1024
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Reader(Protocol):
    async def readexactly(self, n: int) -> bytes: ...


class Writer(Protocol):
    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe:
    """Bytes to and from the fixed command on a machine. `close` ends it at once; `why` returns what the command
    printed if it ended by itself."""

    reader: Reader
    writer: Writer
    close: Callable[[], None]
    why: Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """The identity of the daemon: its cluster and its store epoch."""

    root: str
    cluster_id: str
    epoch: int


class Late(Unreachable):
    """The machine did not act, because the command was meant for an earlier time, boot or daemon."""


class AgentLink:
    """`upstream` opens a connection to the daemon's own API, for reports of trainings."""

    def __init__(
        self, pipe: Pipe, epoch: int, heard: Callable[[str], None], upstream: Callable[[], Awaitable[Streams]]
    ) -> None:
        self.lost = ""  # why, once it is
        self._pipe = pipe
        self._epoch = epoch
        self._heard = heard
        self._upstream = upstream
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[tuple[Any, bytes]]] = {}
        self._relayed: dict[int, asyncio.Queue[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending = asyncio.Lock()

    async def open(self, greeting: Greeting) -> Json:
        """Deliver the agent if it is missing, start it, and return its first message."""
        archive = agent_archive()
        told = {"root": greeting.root, "cluster": greeting.cluster_id, "hash": archive.name, "epoch": greeting.epoch}
        try:
            await self._write(boot_program() + frame(told))
            if (await self._told())["need"]:
                await self._write(frame({}, archive.data))
            hello: Json = (await self._told())["hello"]
        except Exception as error:  # OSError, or of the library that carries the bytes
            said = "" if isinstance(error, Unreachable) else await self._pipe.why()
            self.close(said or str(error))
            raise Unreachable(f"the agent did not start: {self.lost}") from error
        if hello["protocol"] != PROTOCOL:
            self.close(f"the agent speaks protocol {hello['protocol']}, we {PROTOCOL}")
            raise Unreachable(self.lost)
        self._begin(self._read())
        return hello

    async def _told(self) -> Json:
        message, _ = await self._frame()
        if "error" in message:
            raise Unreachable(str(message["error"]))
        return message

    async def call(self, name: str, data: bytes = b"", /, **arguments: Any) -> tuple[Any, bytes]:
        """Raises `Unreachable` if the link is lost before the answer, OSError if the machine refuses."""
        if self.lost:
            raise Unreachable(self.lost)
        number = next(self._ids)
        answer: asyncio.Future[tuple[Any, bytes]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            await self._write(frame({"id": number, "call": name, "epoch": self._epoch, **arguments}, data))
            return await answer
        finally:
            self._waiting.pop(number, None)

    async def _write(self, data: bytes) -> None:
        """Write one frame after the other, because one may be longer than a single write."""
        async with self._sending:
            try:
                self._pipe.writer.write(data)
                await self._pipe.writer.drain()
            except Exception as error:  # OSError, or of the library that carries the bytes
                self.close(str(error) or repr(error))
                raise Unreachable(self.lost) from error

    async def _frame(self) -> tuple[Json, bytes]:
        of_text, of_data = sizes(await self._pipe.reader.readexactly(HEAD.size))
        body = await self._pipe.reader.readexactly(of_text + of_data)
        return decoded(body[:of_text]), body[of_text:]

    async def _read(self) -> None:
        try:
            while True:
                message, data = await self._frame()
                if "id" in message:
                    self._answered(message, data)
                elif "heard" in message:
                    self._heard(str(message["heard"]))
                elif "stream" in message:
                    self._relay(int(message["stream"]), data, end=bool(message.get("end")))
        except asyncio.CancelledError:
            self.close()
            raise
        except (OSError, EOFError, Broken) as error:
            self.close(str(error) or "the connection was lost")
        except Exception as error:  # of the library that carries the bytes
            log.warning("a connection to an agent was lost: %r", error)
            self.close(str(error) or repr(error))

    def _answered(self, message: Json, data: bytes) -> None:
        waiting = self._waiting.get(int(message["id"]))
        if waiting is None or waiting.done():
            return
        if "error" not in message:
            waiting.set_result((message.get("ok"), data))
        elif message.get("kind") == "refused":
            number, said = message.get("errno"), str(message["error"])
            waiting.set_exception(OSError(number, said) if number else OSError(said))
        else:
            waiting.set_exception(Late(str(message["error"])))

    def close(self, why: str = "closed") -> None:
        self.lost = self.lost or why
        self._pipe.close()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(Unreachable(self.lost))
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()

    def _begin(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # was logged where it happened

    # ---- streams of trainings ----

    def _relay(self, stream: int, data: bytes, *, end: bool) -> None:
        queue = self._relayed.get(stream)
        if queue is None:
            if end:
                return
            queue = self._relayed[stream] = asyncio.Queue()
            self._begin(self._carry(stream, queue))
        queue.put_nowait(b"" if end else data)

    async def _carry(self, stream: int, queue: asyncio.Queue[bytes]) -> None:
        """Forward a stream both ways, until either side has ended."""
        back: asyncio.Task[None] | None = None
        try:
            reader, writer = await self._upstream()
            with contextlib.closing(writer):
                back = asyncio.create_task(self._carry_back(stream, reader))
                while data := await queue.get():
                    writer.write(data)
                    await writer.drain()
        except OSError:
            await self._end_stream(stream)
        finally:
            del self._relayed[stream]
            if back is not None:
                back.cancel()
                await asyncio.gather(back, return_exceptions=True)

    async def _carry_back(self, stream: int, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._write(frame({"stream": stream}, data))
        await self._end_stream(stream)

    async def _end_stream(self, stream: int) -> None:
        with contextlib.suppress(OSError):
            await self._write(frame({"stream": stream, "end": True}))
