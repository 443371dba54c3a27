"""Matches jobs' own patterns against lines of their logs, in a child process (`daemon.pattern_process`)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress

from swell.core.progress import MAX_OWN_LINE
from swell.daemon.pattern_process import LENGTH_BYTES, LIMIT_S

PATIENCE_S = 30.0
"""Time-out for a process that gets no CPU time because the machine is overloaded or suspended."""

Groups = Mapping[str, str | None]


class Unusable(Exception):
    """These patterns are too slow or invalid; the message says which."""


class Patterns:
    """One request at a time. The process starts on demand and ends when it takes too long, or by `stop`."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._process: Process | None = None

    async def find(self, patterns: Sequence[str], lines: Sequence[str]) -> list[Groups | None]:
        """For each line the groups of the first pattern that matches; None: no match. Raises Unusable."""
        request = {"patterns": list(patterns), "lines": [line[:MAX_OWN_LINE] for line in lines]}
        async with self._turn:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    answer = json.loads(await self._exchange(json.dumps(request).encode()))
            except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
                await self.stop()
                raise Unusable(f"it took longer than {LIMIT_S:g} s for {len(lines)} lines") from error
            except BaseException:
                await self.stop()  # part of an answer may be in the pipe
                raise
        if "error" in answer:
            raise Unusable(f"it is not valid: {answer['error']}")
        found: list[Groups | None] = answer["found"]
        return found

    async def _exchange(self, data: bytes) -> bytes:
        process = self._process = self._process or await self._started()
        assert process.stdin is not None  # as asked for
        assert process.stdout is not None
        process.stdin.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
        await process.stdin.drain()
        length = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES), "big")
        return await process.stdout.readexactly(length)

    async def _started(self) -> Process:
        # -P: import no module from the daemon's working directory, to which others may write.
        arguments = ("-P", "-m", "swell.daemon.pattern_process")
        return await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdin=PIPE, stdout=PIPE, start_new_session=True, limit=1 << 24
        )

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            with suppress(ProcessLookupError):  # by its id: Process.kill would reap a process that has just ended
                os.kill(process.pid, signal.SIGKILL)
        await process.wait()
