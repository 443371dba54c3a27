"""Whatever bytes come over the socket of a real daemon: never an error of the daemon, and it stays well."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections import Counter
from pathlib import Path

from harness import Daemon, daemon

from .malformed import requests

COUNT = int(os.environ.get("SWELL_EXAMPLES", "1500"))
AT_ONCE = 24
ANSWER_S = 1.0
_STATUS = re.compile(rb"^HTTP/1\.1 (\d{3}) ")


async def answered(address: tuple[str, int], data: bytes) -> str:
    """The status, `closed` for a connection that was just closed, `waits` for one that waits for the rest."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(data)
        found = await asyncio.wait_for(reader.read(4096), ANSWER_S)
    except TimeoutError:
        return "waits"
    except ConnectionError:
        return "closed"
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    match = _STATUS.match(found)
    return match[1].decode() if match else "closed" if not found else "?"


async def sent(served: Daemon, count: int) -> Counter[str]:
    address, room, seen = served.address, asyncio.Semaphore(AT_ONCE), Counter[str]()

    async def one(data: bytes) -> None:
        async with room:
            status = await answered(address, data)
            seen[status] += 1
            assert not status.startswith("5"), (status, data)

    async with asyncio.TaskGroup() as tasks:
        for data in requests(seed=11, count=count, token=served.token):
            await room.acquire()
            room.release()
            tasks.create_task(one(data))
    return seen


def test_never_an_error_of_the_daemon_whatever_bytes_come(tmp_path: Path) -> None:
    with daemon(tmp_path / "home", gpus=0) as served:
        seen = asyncio.run(sent(served, COUNT))
        print(f"{COUNT} raw requests: {dict(seen.most_common())}")
        assert sum(seen.values()) == COUNT
        assert seen["400"] > COUNT // 10
        assert seen["200"] > 0
        assert "?" not in seen
        assert served.get("/v1/health")["ready"]
        assert served.submit(command="true", gpus=0)
        assert "Traceback" not in (served.home / "daemon.log").read_text(errors="replace")
