"""A bounded mix of GET requests on loopback by many clients at once, each waiting for its answer before the next.

Run as a process of its own, `python mix.py HOST PORT TOKEN CLIENTS SECONDS FIRST LAST`: nine of ten requests list the
queue, the tenth explains a job out of FIRST..LAST. Prints one JSON object: for each kind its count, its percentiles in
milliseconds and its answers by status.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import time
from collections import Counter, defaultdict

LIST = "/v1/jobs?state=queued&limit=100"
TENTH = 10

Times = dict[str, list[float]]


class Mix:
    """What was asked and how it was answered."""

    def __init__(self, host: str, port: int, token: str) -> None:
        self._where = (host, port)
        self._head = f"HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n\r\n"
        self.times: Times = defaultdict(list)
        self.statuses: dict[str, Counter[int]] = defaultdict(Counter)
        self.complete = 0  # explanations of which nothing was missing

    async def client(self, number: int, jobs: range, until: float) -> None:
        rng = random.Random(number)
        reader, writer = await asyncio.open_connection(*self._where)
        for turn in range(rng.randrange(TENTH), sys.maxsize):
            if time.monotonic() > until:
                break
            kind = "explain" if turn % TENTH == 0 else "list"
            path = f"/v1/jobs/{rng.choice(jobs)}/explain" if kind == "explain" else LIST
            began = time.perf_counter()
            writer.write(f"GET {path} {self._head}".encode())
            status, body = await _answer(reader)
            self.times[kind].append(1000 * (time.perf_counter() - began))
            self.statuses[kind][status] += 1
            self.complete += kind == "explain" and status == 200 and not json.loads(body).get("missing")
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    length = next(int(line.split(":")[1]) for line in head if line.lower().startswith("content-length"))
    return int(head[0].split()[1]), await reader.readexactly(length)


def _told(mix: Mix) -> dict[str, object]:
    found: dict[str, object] = {"complete": mix.complete}
    for kind, times in mix.times.items():
        parts = statistics.quantiles(times, n=100)
        found[kind] = {
            "count": len(times),
            "p50_ms": parts[49],
            "p99_ms": parts[98],
            "most_ms": max(times),
            "statuses": {str(status): count for status, count in mix.statuses[kind].items()},
        }
    return found


async def main() -> None:
    host, port, token, clients, seconds, first, last = sys.argv[1:8]
    mix = Mix(host, int(port), token)
    until = time.monotonic() + float(seconds)
    jobs = range(int(first), int(last) + 1)
    await asyncio.gather(*(mix.client(number, jobs, until) for number in range(int(clients))))
    print(json.dumps(_told(mix)))


if __name__ == "__main__":
    asyncio.run(main())
