"""Looks at runs concurrently, with one look per run at a time, so that a node whose logs hang delays no other run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from swell.core.ids import RunId

AT_ONCE = 64


class Rounds:
    """`look` must not raise. `wake` is called when a run needs a look; its receiver then calls `begin`."""

    def __init__(self, look: Callable[[RunId], Awaitable[None]], wake: Callable[[], None]) -> None:
        self._look = look
        self._wake = wake
        self._due: dict[RunId, None] = {}
        self._under_way: dict[RunId, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(AT_ONCE)

    def hint(self, runs: Iterable[RunId]) -> None:
        """These runs need a look. A hint during a look causes one more."""
        self._due.update(dict.fromkeys(runs))
        self._wake()

    def begin(self) -> None:
        for run in [run for run in self._due if run not in self._under_way]:
            del self._due[run]
            self._under_way[run] = asyncio.create_task(self._looked(run))

    async def _looked(self, run: RunId) -> None:
        try:
            async with self._room:
                await self._look(run)
        finally:
            del self._under_way[run]
            if run in self._due:
                self._wake()

    async def close(self) -> None:
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
