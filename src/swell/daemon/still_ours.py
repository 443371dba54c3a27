"""Whether the database is still this daemon's: asked before each renewal of leases, for many machines at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class StillOurs:
    """One question to the store serves all who asked before it was put."""

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
