"""Bounds the size of the log: removes old events in transactions too small to delay other writers."""

from __future__ import annotations

import asyncio

from swell.daemon.hourly import PAUSE_S, Hourly
from swell.ports import Clock, Store

STEP_EVENTS = 250
"""Events removed per transaction; other writers wait while it runs."""


def compaction(store: Store, clock: Clock, *, keep_days: float, pause_s: float = PAUSE_S) -> Hourly:
    async def step(before_s: float) -> int:
        return await asyncio.to_thread(store.compact, before_s, STEP_EVENTS)

    return Hourly("old events of the log", step, clock, keep_days=keep_days, pause_s=pause_s)
