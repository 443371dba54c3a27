"""Many clients at once, as people and scripts use a daemon: reads and writes with pauses in between.

Run as a process of its own, `python people.py HOST PORT TOKEN CLIENTS SECONDS FIRST LAST`: four of five requests read
(lists of waiting and of ended jobs, a job, explain, machines, quota), the fifth submits, changes a priority or cancels
what it submitted. Each client pauses half a second on average between an answer and its next request. Prints one JSON
object: for reads and writes the count, percentiles in milliseconds and answers by status, and the slowest kinds."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import time
from collections import Counter, defaultdict

PAUSE_S = 0.5
LONGEST_PAUSE_S = 4.0
"""The server closes a connection that is idle for five seconds."""
READS = (
    "/v1/jobs?state=queued&limit=100",
    "/v1/jobs?state=ended&limit=100",
    "/v1/jobs/{job}",
    "/v1/jobs/{job}/explain",
    "/v1/nodes",
    "/v1/quota",
    "/v1/health",
)


class Client:
    def __init__(self, people: People, number: int) -> None:
        self._people, self._rng = people, random.Random(number)
        self._own: list[int] = []  # jobs that it submitted

    async def run(self, until: float) -> None:
        reader, writer = await asyncio.open_connection(*self._people.where)
        while time.monotonic() < until:
            await asyncio.sleep(min(self._rng.expovariate(1.0 / PAUSE_S), LONGEST_PAUSE_S))
            kind, method, path, body = self._next()
            head = f"{method} {path} {self._people.head}Content-Length: {len(body)}\r\n\r\n"
            began = time.perf_counter()
            writer.write(head.encode() + body)
            status, answer = await _answer(reader)
            self._people.note(kind, 1000 * (time.perf_counter() - began), status)
            if kind == "submit" and status == 201:
                self._own.append(json.loads(answer)["ids"][0])
        writer.close()

    def _next(self) -> tuple[str, str, str, bytes]:
        rng = self._rng
        if rng.random() < 0.8:
            template = rng.choice(READS)
            return template, "GET", template.format(job=rng.choice(self._people.jobs)), b""
        if len(self._own) < 3:
            job = {"name": "new", "command": "true", "gpus": 1, "depends_on": [self._people.blocker]}
            return "submit", "POST", "/v1/jobs", json.dumps(job).encode()
        if rng.random() < 0.5:
            return "priority", "POST", f"/v1/jobs/{rng.choice(self._own)}/priority", b'{"priority": 1}'
        return "cancel", "POST", f"/v1/jobs/{self._own.pop()}/cancel", b""


class People:
    def __init__(self, host: str, port: int, token: str, jobs: range) -> None:
        self.where, self.jobs, self.blocker = (host, port), jobs, jobs[0] - 1
        self.head = (
            f"HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        )
        self._times: dict[str, list[float]] = defaultdict(list)
        self._statuses: Counter[int] = Counter()

    def note(self, kind: str, ms: float, status: int) -> None:
        self._times[kind].append(ms)
        self._statuses[status] += 1

    def told(self) -> dict[str, object]:
        reads = [ms for kind, times in self._times.items() if kind in READS for ms in times]
        writes = [ms for kind, times in self._times.items() if kind not in READS for ms in times]
        kinds = {kind: _summary(times) for kind, times in self._times.items()}
        statuses = {str(status): count for status, count in self._statuses.items()}
        return {"reads": _summary(reads), "writes": _summary(writes), "kinds": kinds, "statuses": statuses}


def _summary(times: list[float]) -> dict[str, float]:
    parts = statistics.quantiles(times, n=100) if len(times) > 1 else [0.0] * 99
    return {"count": len(times), "p50_ms": parts[49], "p99_ms": parts[98], "most_ms": max(times, default=0.0)}


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    length = next(int(line.split(":")[1]) for line in head if line.lower().startswith("content-length"))
    return int(head[0].split()[1]), await reader.readexactly(length)


async def main() -> None:
    host, port, token, clients, seconds, first, last = sys.argv[1:8]
    people = People(host, int(port), token, range(int(first), int(last) + 1))
    until = time.monotonic() + float(seconds)
    await asyncio.gather(*(Client(people, number).run(until) for number in range(int(clients))))
    print(json.dumps(people.told()))


if __name__ == "__main__":
    asyncio.run(main())
