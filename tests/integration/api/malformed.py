"""Requests that are wrong in every way a seeded imagination finds, as bytes for a socket."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

PATHS = (
    "/v1/health",
    "/v1/jobs",
    "/v1/jobs/1",
    "/v1/jobs/last/logs",
    "/v1/jobs/1/logs?follow=false&offset=-1",
    "/v1/nodes",
    "/v1/nodes/x/drain",
    "/v1/policy",
    "/v1/events?follow=false",
    "/v1/events?after=9&follow=0",
    "/v1/runs/1.1",
    "/v1/runs/1.1/stop?rank=x",
    "/v1/runs/1.1/report",
    "/v1/what-if",
    "/v1/jobs/cancel",
    "/v1/timeline?from=nan",
    "/v1/ui/sessions",
    "/v1/jobs/validate",
    "/v1/files/" + "0" * 64,
    "/",
    "/assets/x.js",
    *(
        "//",
        "/%00",
        "/%ff%fe",
        "/v1/jobs/%2e%2e%2f",
        "/v1/jobs/" + "9" * 400,
        "/v1/../v1/jobs",
        "/v1/jobs?" + "a&" * 99,
    ),
    "*",
    "http://127.0.0.1/v1/jobs",
    "http://[/v1/jobs",
    "/v1/jobs\\x",
    "/v1/jobs?limit=%F0%9F",
    "",
    "é",
    "/\x01",
)
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT", "get", "G\tT", "", "X" * 99)
VERSIONS = ("HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/1.1\x00", "HTTP/9.9", "http/1.1", "")
BODIES = (
    b"",
    b"{",
    b"{}",
    b"[]",
    b"null",
    b"3",
    b'{"jobs":[true]}',
    b'{"jobs":["\\ud800"]}',
    b"\xff\xfe",
    b"[" * 3000,
    *(
        b'{"command":"true","gpus":64}',
        b'{"name":"n","gpus":1e400}',
        b'{"rank":-1,"epochs":[{"epoch":1e9}]}',
        b"\0" * 64,
    ),
    b"command: [a",
    b"a: &a [*a]",
    b"- \n- - - -",
    b'{"a":' * 900,
    b'{"name":"x","options":{"a":NaN}}',
    b"x" * 5000,
)
HEADERS = (
    "Origin: http://[",
    "Origin: null",
    "Host: evil.example",
    "Host: [::1",
    "Host:",
    "Content-Length: -1",
    "Content-Length: 5",
    "Content-Length: 99999999999999999999",
    "Content-Length: 3, 3",
    "Content-Length: 0x10",
    *(
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: xchunked",
        "Expect: 100-continue",
    ),
    *(
        "Connection: upgrade\r\nUpgrade: websocket",
        "Connection: Upgrade\r\nUpgrade: h2c",
        "Last-Event-ID: é",
        "Last-Event-ID: 1:2,3,x",
    ),
    "Content-Type: application/yaml",
    "Content-Type: text/plain; charset=utf-7",
    "Content-Type: multipart/form-data",
    *(
        "Content-Type: application/json; charset=utf-16",
        "Swell-User: %ff%00\x7f",
        "Idempotency-Key: \x80",
        "Range: bytes=0-",
    ),
    *(
        "Authorization: Basic Og==",
        "Authorization: Bearer",
        "Cookie: a=b",
        "X: " + "y" * 9000,
        " folded: x",
        "no colon",
        ": v",
    ),
    *(
        "Content-Encoding: gzip",
        "Accept-Encoding: gzip",
        "Accept: text/event-stream",
        "X-Forwarded-For: ::1",
        "\x00: x",
    ),
)


def requests(seed: int, count: int, token: str) -> Iterator[bytes]:
    rng = random.Random(seed)
    for _ in range(count):
        yield _damaged(rng, _request(rng, token))


def _request(rng: random.Random, token: str) -> bytes:
    method = rng.choice(METHODS[:4]) if rng.random() < 0.8 else rng.choice(METHODS)
    version = VERSIONS[0] if rng.random() < 0.9 else rng.choice(VERSIONS)
    lines = [f"{method} {rng.choice(PATHS)} {version}"]
    if rng.random() < 0.95:
        lines.append("Host: 127.0.0.1")
    if rng.random() < 0.9:
        lines.append(f"Authorization: Bearer {token}")
    lines += rng.sample(HEADERS, k=rng.choice((0, 0, 0, 0, 1, 1, 3)))
    body = rng.choice(BODIES)
    if rng.random() < 0.8:
        lines.append(f"Content-Length: {len(body)}")
    end = rng.choice(("\r\n",) * 30 + ("\n", "\r", "\r\n "))
    return end.join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body


def _damaged(rng: random.Random, data: bytes) -> bytes:
    harm: Callable[[random.Random, bytes], bytes] = rng.choice((_same,) * 8 + (_cut, _changed, _doubled, _noise))
    return harm(rng, data)


def _same(_: random.Random, data: bytes) -> bytes:
    return data


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def _changed(rng: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        found[rng.randrange(len(found))] = rng.randrange(256)
    return bytes(found)


def _doubled(rng: random.Random, data: bytes) -> bytes:
    return data + data[rng.randrange(len(data)) :]


def _noise(rng: random.Random, _: bytes) -> bytes:
    return rng.randbytes(rng.choice((1, 16, 400)))
