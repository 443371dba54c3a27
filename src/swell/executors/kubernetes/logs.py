"""Logs of containers, kept on the daemon's disk: followed while they run, and complete before their pod is released.

The API server serves a log from a time on, not from an offset. So lines are requested with their times, and the time of
the last one on disk is kept beside the log; a later request continues from there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from swell.executors.kubernetes.api import Api, Refusal, namespaced
from swell.executors.transport import Unreachable
from swell.ports import LogChunk
from swell.shim.log_times import LogTimes

log = logging.getLogger(__name__)

AGAIN_S, LATEST_AGAIN_S = 1.0, 30.0
"""Delay before a failed request of a log is repeated: it begins with the first and doubles up to the second."""
MOST_STREAMS = 400
"""Maximum number of logs that are followed at once; those of further containers are fetched every LATEST_AGAIN_S."""
DRAIN_S = 20.0
TIMES_S = 1.0
"""Minimum distance between two lines whose times are kept."""
FOLLOWED_S = 5.0
TRIES = 3
"""Number of requests to a node for the log of a container that ran there, before it counts as lost."""
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[0-9.:Z+-]*", re.ASCII)
"""The time of each line; a line without one is a message of the kubelet ("unable to retrieve container logs")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One container, and the directory that its log is kept in."""

    namespace: str
    pod: str
    container: str
    directory: Path


class Logs:
    """One task per container that is followed. Not safe for several event loops."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._following: dict[Source, asyncio.Task[None]] = {}
        self._ending: dict[Source, asyncio.Event] = {}  # of those that are followed: set once it is drained
        self._whole: set[Source] = set()  # followed until their node ended the stream
        self._refused: dict[Source, int] = {}

    def follow(self, source: Source) -> None:
        task = self._following.get(source)
        if task is None or task.done():
            self._ending[source] = asyncio.Event()
            self._following[source] = asyncio.create_task(self._follow(source, self._ending[source]))

    async def _follow(self, source: Source, ending: asyncio.Event) -> None:
        """Until it is drained, and whole if it can be had."""
        wait_s = AGAIN_S
        while True:
            follow = len(self._following) <= MOST_STREAMS
            with suppress(OSError):  # not started yet, or no answer: asked again
                await self._pull(source, follow=follow)
                wait_s = AGAIN_S
            if ending.is_set():
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s if follow else LATEST_AGAIN_S):
                    await ending.wait()
            wait_s = min(LATEST_AGAIN_S, 2 * wait_s)

    async def drain(self, source: Source, *, ran: bool) -> bool:
        """Fetch the complete log of a container that has ended. False: it is not available now. A task that follows it
        may finish first, because the kubelet may have deleted the log of a pod that is being deleted."""
        if source in self._following:
            self._ending[source].set()
            await asyncio.wait([self._following[source]], timeout=FOLLOWED_S)
        await self._stop(source)
        try:
            async with asyncio.timeout(DRAIN_S):
                await self._pull(source, follow=False)
        except Refusal as refusal:
            if ran and source not in self._whole and not self._given_up(source, refusal):
                return False
        except (Unreachable, TimeoutError):
            return False
        self._whole.discard(source)
        self._refused.pop(source, None)
        return True

    def _given_up(self, source: Source, refusal: Refusal) -> bool:
        """Whether to give the log up: a busy node may refuse for a moment, so only after `TRIES`. The log says so."""
        self._refused[source] = self._refused.get(source, 0) + 1
        if self._refused[source] < TRIES:
            return False
        keeper = _Keeper(source.directory)
        keeper.note(f"swell: lines may be missing here: the pod's node has no more of this log ({refusal})")
        keeper.close()
        return True

    async def _stop(self, source: Source) -> None:
        self._ending.pop(source, None)
        task = self._following.pop(source, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        for source in list(self._following):
            await self._stop(source)

    async def _pull(self, source: Source, *, follow: bool) -> None:
        params = {"container": source.container, "timestamps": "true", "follow": "true" if follow else "false"}
        path = f"{namespaced(source.namespace, 'pods', source.pod)}/log"
        keeper = _Keeper(source.directory)
        if keeper.last:
            params["sinceTime"] = keeper.last
        try:
            async with self._api.stream(path, params, spare=follow) as chunks:
                async for chunk in chunks:
                    keeper.take(chunk)
            keeper.take_rest()
            if follow and (keeper.heard or not keeper.complaint):
                # A kubelet ends a followed log after the last line, or complains once it has removed the container.
                self._whole.add(source)
            if keeper.complaint:
                raise Refusal(400, "BadRequest", keeper.complaint)
        finally:
            keeper.close()


class _Keeper:
    """Appends newer lines to a log. The time of the last line is written after the line, so lines that a crash left
    without a time are truncated and fetched again."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._mark = directory / "log.at"
        size, self.last = self._read_mark()
        self._known = self.last  # lines up to here are there; later ones may come in another order than their times
        self._log = os.open(directory / "log", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._log, size)
        self._size = size
        self._times = LogTimes(str(directory), TIMES_S)
        self._rest = b""
        self.heard = False  # lines of the log came, known ones too
        self.complaint = ""  # the kubelet's own word in the place of a log

    def _read_mark(self) -> tuple[int, str]:
        try:
            size, _, last = self._mark.read_text(encoding="ascii").partition(" ")
            return int(size), last
        except (OSError, ValueError):
            return 0, ""

    def take(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self._write([line + b"\n" for line in lines])

    def take_rest(self) -> None:
        """The end of the log, without a newline."""
        if self._rest:
            self._write([self._rest])
            self._rest = b""

    def _write(self, lines: list[bytes]) -> None:
        fresh, last = b"", self.last
        for line in lines:
            time, _, text = line.partition(b" ")
            stamp = time.decode("ascii", "replace")
            if not _STAMP.fullmatch(stamp):
                self.complaint = line.decode("utf-8", "replace").strip()
                continue
            self.heard = True
            if _after(stamp, self._known):
                fresh, last = fresh + text, stamp if _after(stamp, last) else last
                self._note(last, len(fresh))
        if fresh:
            self._append(fresh, last)

    def _note(self, stamp: str, fresh: int) -> None:
        """Note a time before its lines are on disk; a reader ignores times beyond the end of the log."""
        with suppress(ValueError):
            self._times.note(datetime.fromisoformat(stamp).timestamp(), self._size + fresh)

    def note(self, text: str) -> None:
        """A line of Swell's own."""
        self._append(f"{text}\n".encode(), self.last)

    def _append(self, fresh: bytes, last: str) -> None:
        os.pwrite(self._log, fresh, self._size)
        self._size, self.last = self._size + len(fresh), last
        beside = self._mark.with_suffix(".tmp")
        beside.write_text(f"{self._size} {last}", encoding="ascii")
        beside.replace(self._mark)

    def close(self) -> None:
        os.close(self._log)


def _after(stamp: str, last: str) -> bool:
    """Compares two times like 2026-11-17T05:00:00.12Z, whose fractions may differ in length."""
    return _sortable(stamp) > _sortable(last)


def _sortable(stamp: str) -> str:
    whole, _, fraction = stamp.removesuffix("Z").partition(".")
    return f"{whole}.{fraction:0<9}" if whole else ""


def read(path: Path, offset: int, limit: int, *, ended: bool) -> LogChunk:
    """Reads a piece of a log, empty if there is none. Raises OSError for other errors."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(offset)
            data = file.read(max(0, limit))
    except FileNotFoundError:
        return LogChunk(data=b"", offset=offset, next_offset=offset, end=ended)
    after = offset + len(data)
    return LogChunk(data=data, offset=offset, next_offset=after, end=ended and after >= size)
