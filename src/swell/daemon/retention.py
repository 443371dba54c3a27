"""Removes jobs that ended long ago, with all they left on disk, if the configuration says after how many days; if not,
nothing is removed. `swell rm --ended --older-than` does the same by hand, and shows first what would go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from swell.core.errors import Conflict, NotFound, StoreError
from swell.core.ids import JobId
from swell.ports import Clock, Record

log = logging.getLogger(__name__)

EVERY_S = 3600.0
BATCH = 100
DAY_S = 86400.0
PAUSE_S = 0.05
"""Between two removals: others write meanwhile."""


class Retention:
    def __init__(
        self,
        record: Record,
        remove: Callable[[JobId], Awaitable[None]],
        clock: Clock,
        *,
        keep_days: float,
        pause_s: float = PAUSE_S,
    ) -> None:
        """`keep_days` 0: keep all."""
        self._record = record
        self._remove = remove
        self._clock = clock
        self._keep_s = keep_days * DAY_S
        self._pause_s = pause_s

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.once()
            await asyncio.sleep(EVERY_S)

    async def once(self) -> Sequence[JobId]:
        """The jobs that were removed."""
        removed: list[JobId] = []
        if not self._keep_s:
            return removed
        before_s = self._clock.now_s() - self._keep_s
        try:
            # What cannot go yet (another job wants its files) stays where it is and would come again and again.
            while going := await self._some(before_s):
                removed += going
                await asyncio.sleep(self._pause_s)
        except StoreError as error:
            log.warning("jobs that ended long ago were not all removed; it is tried again in an hour: %s", error)
        if removed:
            log.info("removed %d jobs that ended more than %g days ago", len(removed), self._keep_s / DAY_S)
        return removed

    async def _some(self, before_s: float) -> list[JobId]:
        removed: list[JobId] = []
        for job in await asyncio.to_thread(self._record.ended_before, before_s, BATCH):
            try:
                await self._remove(job)
            except (Conflict, NotFound) as error:
                log.debug("job %d is kept for now: %s", job, error)
            else:
                removed.append(job)
            await asyncio.sleep(self._pause_s)
        return removed
