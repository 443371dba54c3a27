"""A bounded load of HTTP requests on loopback, too cheap to be what is measured: raw sockets, a thread a client.

Run as a process of its own: `python load.py HOST PORT TOKEN CLIENTS SECONDS PATH BODY` prints requests and seconds.
"""

from __future__ import annotations

import socket
import sys
import threading
import time


def answers(connection: socket.socket, request: bytes) -> bytes:
    """Send one request and read the whole answer (Content-Length framing)."""
    connection.sendall(request)
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    while len(body) < length:
        body += connection.recv(65536)
    if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201", b"HTTP/1.1 202")):
        raise SystemExit(f"unexpected answer: {head[:60]!r} {body[:300]!r}")
    return body


def client(address: tuple[str, int], request: bytes, until: float, counts: list[int], index: int) -> None:
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while time.monotonic() < until:
            answers(connection, request)
            counts[index] += 1


def main() -> None:
    host, port, token, clients, seconds, path, body = sys.argv[1:8]
    data = body.encode()
    request = (
        f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    ).encode() + data
    counts = [0] * int(clients)
    began = time.monotonic()
    until = began + float(seconds)
    threads = [
        threading.Thread(target=client, args=((host, int(port)), request, until, counts, i))
        for i in range(int(clients))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(sum(counts), time.monotonic() - began)


if __name__ == "__main__":
    main()
