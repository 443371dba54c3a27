"""Removes jobs that ended long ago, with all their files, after the number of days in the configuration; if that is
unset, none. `swell rm --ended --older-than` does the same by hand, and first shows what it would remove."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from swell.core.errors import Conflict, NotFound
from swell.core.ids import JobId
from swell.daemon.hourly import PAUSE_S, Hourly
from swell.ports import Clock, Record

log = logging.getLogger(__name__)

BATCH = 100


def retention(
    record: Record,
    remove: Callable[[JobId], Awaitable[None]],
    clock: Clock,
    *,
    keep_days: float,
    pause_s: float = PAUSE_S,
) -> Hourly:
    async def step(before_s: float) -> int:
        """A job that cannot be removed yet, because another one needs its files, is not counted: otherwise this step
        would repeat without end."""
        removed = 0
        for job in await asyncio.to_thread(record.ended_before, before_s, BATCH):
            try:
                await remove(job)
                removed += 1
            except (Conflict, NotFound) as error:
                log.debug("job %d is kept for now: %s", job, error)
            await asyncio.sleep(pause_s)
        return removed

    return Hourly("ended jobs", step, clock, keep_days=keep_days, pause_s=pause_s)
