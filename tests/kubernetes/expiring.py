"""A relay before the API server that lets watches expire: the server itself then answers 410, as it does to a client
that was away for too long."""

from __future__ import annotations

import http.client
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import urlsplit

OLD = "1"
"""A resource version that every server has forgotten."""
PASSED_ON = ("Authorization", "Content-Type", "Accept")


class Relay(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(upstream).netloc
        self.expired = 0  # answers 410 that were passed on
        self._lock = threading.Lock()
        self._watches: set[http.client.HTTPSConnection] = set()
        self._to_expire = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def expire(self) -> int:
        """Ends all watches; as many of the next ones ask for a version that is too old. Returns their number."""
        with self._lock:
            watches = list(self._watches)
            self._to_expire = len(watches)
        for connection in watches:
            with suppress(OSError):
                connection.sock.shutdown(2)
        return len(watches)

    def path_of(self, path: str) -> str:
        """Of a new watch: with the version that it asks for, or an old one."""
        with self._lock:
            if not self._to_expire:
                return path
            self._to_expire -= 1
        return re.sub(r"resourceVersion=\w+", f"resourceVersion={OLD}", path)

    @contextmanager
    def watching(self, connection: http.client.HTTPSConnection) -> Iterator[None]:
        with self._lock:
            self._watches.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._watches.discard(connection)


class _Handler(BaseHTTPRequestHandler):
    server: Relay
    protocol_version = "HTTP/1.1"
    _unverified: ClassVar[ssl.SSLContext] = ssl._create_unverified_context()

    def _pass_on(self) -> None:
        connection = http.client.HTTPSConnection(self.server.upstream, context=self._unverified)
        try:
            if "watch=true" in self.path:
                with self.server.watching(connection):
                    self._answer(connection, self.server.path_of(self.path))
            else:
                self._answer(connection, self.path)
        finally:
            connection.close()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on

    def _answer(self, connection: http.client.HTTPSConnection, path: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        headers = {name: value for name in PASSED_ON if (value := self.headers.get(name))}
        connection.request(self.command, path, body or None, headers)
        answer = connection.getresponse()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers.get("Content-Type", "text/plain"))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._copy(answer)

    def _copy(self, answer: http.client.HTTPResponse) -> None:
        """To its end, or until it was cut: for the client that is an ordinary end."""
        with suppress(OSError, ValueError, http.client.HTTPException):
            while part := answer.read1(65_536):
                self.server.expired += b'"code":410' in part
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        """Nobody reads them."""


@contextmanager
def relay(upstream: str) -> Iterator[Relay]:
    found = Relay(upstream)
    thread = threading.Thread(target=found.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        found.shutdown()
        thread.join()
        found.server_close()
