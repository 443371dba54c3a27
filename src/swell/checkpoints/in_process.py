"""The daemon's own machine as a holder of checkpoints: what a machine does, called in threads."""

from __future__ import annotations

import asyncio

from swell.checkpoints.holder import Json, Spot
from swell.core.ids import JobId
from swell.shim.checkpoints import Checkpoints


class InProcess:
    """See `holder.Holder`."""

    def __init__(self, files: Checkpoints) -> None:
        self._files = files

    async def look(self, job: JobId, spot: Spot) -> Json:
        return await asyncio.to_thread(self._files.look, job, spot.own, spot.named)

    async def mark(self, job: JobId, spot: Spot, nonce: str) -> None:
        await asyncio.to_thread(self._files.mark, job, spot.own, spot.named, nonce)

    async def set_aside(self, job: JobId, spot: Spot, *, over: bool, limit: int) -> Json:
        return await asyncio.to_thread(self._files.set_aside, job, spot.own, spot.named, over, limit)

    async def read(self, job: JobId, content: str, offset: int) -> bytes:
        return await asyncio.to_thread(self._files.read, job, content, offset)

    async def arrived(self, job: JobId, content: str) -> int:
        return await asyncio.to_thread(self._files.arrived, job, content)

    async def take(self, job: JobId, content: str, offset: int, digest: str, data: bytes) -> None:
        await asyncio.to_thread(self._files.take, job, content, offset, digest, data)

    async def put_in_place(self, job: JobId, spot: Spot, files: list[list[object]]) -> None:
        await asyncio.to_thread(self._files.put_in_place, job, spot.own, spot.named, files)
