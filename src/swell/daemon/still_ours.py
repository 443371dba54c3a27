"""Checks that the database still belongs to this daemon, before each renewal of leases. Calls share one query."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class StillOurs:
    """One query of the store answers all callers that waited when it was sent."""

    def __init__(self, ask: Callable[[], bool]) -> None:
        self._ask = ask
        self._lock = asyncio.Lock()
        self._asked = self._served = 0
        self._ours = False

    async def __call__(self) -> bool:
        self._asked += 1
        number = self._asked
        async with self._lock:
            if self._served < number:
                serves = self._asked
                self._ours = await asyncio.to_thread(self._ask)
                self._served = serves
            return self._ours
