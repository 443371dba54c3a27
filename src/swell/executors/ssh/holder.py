"""A machine over SSH as a holder of checkpoints: its agent is called for each step."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol

from swell.checkpoints.holder import Json, Spot
from swell.core.ids import JobId


class Call(Protocol):
    """A call of an agent. Raises OSError if it does not answer or refuses."""

    def __call__(self, call: str, data: bytes = b"", /, **arguments: Any) -> Awaitable[tuple[Any, bytes]]: ...


class FarHolder:
    """See `checkpoints.holder.Holder`."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def look(self, job: JobId, spot: Spot) -> Json:
        found: Json = (await self._call("checkpoint_look", job=job, own=spot.own, named=spot.named))[0]
        return found

    async def mark(self, job: JobId, spot: Spot, nonce: str) -> None:
        await self._call("checkpoint_mark", job=job, own=spot.own, named=spot.named, nonce=nonce)

    async def set_aside(self, job: JobId, spot: Spot, *, over: bool, limit: int) -> Json:
        asked = {"job": job, "own": spot.own, "named": spot.named, "over": over, "limit": limit}
        found: Json = (await self._call("checkpoint_set_aside", **asked))[0]
        return found

    async def read(self, job: JobId, content: str, offset: int) -> bytes:
        return (await self._call("checkpoint_read", job=job, content=content, offset=offset))[1]

    async def arrived(self, job: JobId, content: str) -> int:
        return int((await self._call("checkpoint_arrived", job=job, content=content))[0])

    async def take(self, job: JobId, content: str, offset: int, digest: str, data: bytes) -> None:
        await self._call("checkpoint_take", data, job=job, content=content, offset=offset, digest=digest)

    async def put_in_place(self, job: JobId, spot: Spot, files: list[list[object]]) -> None:
        await self._call("checkpoint_put_in_place", job=job, own=spot.own, named=spot.named, files=files)
