"""Removes old data once an hour, in small steps with pauses for other writers. Interrupted work continues at the next
start of the daemon."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from swell.core.errors import StoreError
from swell.ports import Clock

log = logging.getLogger(__name__)

EVERY_S = 3600.0
DAY_S = 86400.0
PAUSE_S = 0.05


class Hourly:
    """`step` removes some of what is older than the time it gets, and returns how many; 0 ends the hour's work.
    `keep_days` 0: keep everything."""

    def __init__(
        self,
        what: str,
        step: Callable[[float], Awaitable[int]],
        clock: Clock,
        *,
        keep_days: float,
        pause_s: float,
    ) -> None:
        self._what = what
        self._step = step
        self._clock = clock
        self._keep_s = keep_days * DAY_S
        self._pause_s = pause_s

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.once()
            await asyncio.sleep(EVERY_S)

    async def once(self) -> int:
        """Do the work of this hour. Returns how many were removed."""
        if not self._keep_s:
            return 0
        before_s, removed = self._clock.now_s() - self._keep_s, 0
        try:
            while count := await self._step(before_s):
                removed += count
                await asyncio.sleep(self._pause_s)
        except StoreError as error:
            log.warning("not all %s were removed; it is tried again in an hour: %s", self._what, error)
        if removed:
            log.info("removed %d %s (older than %g days)", removed, self._what, self._keep_s / DAY_S)
        return removed
