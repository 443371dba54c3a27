"""What keeps the checkpoint directory of a job: a machine, or a pod. The seam of this package; see ADR 45.

`shim.checkpoints` does all of it on the machine itself. `in_process` calls that in threads, `ssh.holder` has an agent
call it; whoever else holds runs needs to do no more than carry these seven calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from swell.core.ids import JobId

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """Where a job saves on one machine. `named` is set for scripts without the library whose user named a directory:
    they may save there instead of in the job's own."""

    own: str
    named: str = ""


class Holder(Protocol):
    """Every method raises `OSError` if the machine does not answer, or answers: no. Each may be repeated."""

    async def look(self, job: JobId, spot: Spot) -> Json:
        """{"nonce", "progress", "files"}: see `shim.checkpoints.Checkpoints.look`."""
        ...

    async def mark(self, job: JobId, spot: Spot, nonce: str) -> None:
        """Leave a nonce in the directory."""
        ...

    async def set_aside(self, job: JobId, spot: Spot, *, over: bool, limit: int) -> Json:
        """The newest finished checkpoint, kept from changing until the next call; or {"why"}."""
        ...

    async def read(self, job: JobId, content: str, offset: int) -> bytes:
        """A piece of what is set aside."""
        ...

    async def arrived(self, job: JobId, content: str) -> int:
        """How much of this file is there, in whole pieces."""
        ...

    async def take(self, job: JobId, content: str, offset: int, digest: str, data: bytes) -> None: ...

    async def put_in_place(self, job: JobId, spot: Spot, files: list[list[object]]) -> None:
        """All of [path, size, mode, content] has arrived: it is the job's checkpoint from now on."""
        ...
