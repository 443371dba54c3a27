"""Keeps the log from growing without end: once an hour old events are removed, a few at a time, with pauses in which
others write. A daemon that ends in between goes on at its next start."""

from __future__ import annotations

import asyncio
import logging

from swell.core.errors import StoreError
from swell.ports import Clock, Store

log = logging.getLogger(__name__)

EVERY_S = 3600.0
STEP_EVENTS = 250
"""Removed in one transaction; whoever wants to write waits for it."""
PAUSE_S = 0.05
DAY_S = 86400.0


class Compaction:
    def __init__(self, store: Store, clock: Clock, *, keep_days: float, pause_s: float = PAUSE_S) -> None:
        """`keep_days` 0: keep all events."""
        self._store = store
        self._clock = clock
        self._keep_s = keep_days * DAY_S
        self._pause_s = pause_s

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.once()
            await asyncio.sleep(EVERY_S)

    async def once(self) -> int:
        """How many events were removed."""
        if not self._keep_s:
            return 0
        before_s, removed = self._clock.now_s() - self._keep_s, 0
        try:
            while count := await asyncio.to_thread(self._store.compact, before_s, STEP_EVENTS):
                removed += count
                await asyncio.sleep(self._pause_s)
        except StoreError as error:
            log.warning("old events were not removed from the log; it is tried again in an hour: %s", error)
        if removed:
            log.info("removed %d old events; the log begins with event %d now", removed, self._store.first_seq)
        return removed
