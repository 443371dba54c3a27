"""HTTP connections as uvicorn has them, with a bound on how long and how large the head of a request may be, and with
the user at the other end of a Unix socket.

Without a bound, a client that sends a byte now and then, or nothing, keeps its connection open without end."""

from __future__ import annotations

import asyncio
import os
import socket
import struct

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from swell.api.identity import SOCKET_PEER

HEAD_S = 20.0
MAX_HEAD = 64 * 1024
_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid


class BoundedProtocol(HttpToolsProtocol):
    """The timer runs from the connection, or the first byte after an answer, to the end of the request's headers."""

    _timer: asyncio.TimerHandle | None = None
    _head: int | None = None
    """Bytes of the head so far; None outside of one. (The rest of a body that was refused is no head.)"""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.client = _peer_user(transport) or self.client
        self._arm()

    def data_received(self, data: bytes) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self._arm()
        super().data_received(data)
        if self._head is not None:
            self._head += len(data)
            if self._head > MAX_HEAD and not self.transport.is_closing():
                self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head = 0

    def on_headers_complete(self) -> None:
        self._head = None
        super().on_headers_complete()
        self._disarm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_S, self.timeout_keep_alive_handler)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None


def _peer_user(transport: asyncio.Transport) -> tuple[str, int] | None:
    """In place of an address, the user whose process connected; None if that was over a network."""
    found = transport.get_extra_info("socket")
    if found is None or found.family != socket.AF_UNIX:
        return None
    with socket.socket(fileno=os.dup(found.fileno())) as peer:  # what uvloop gives cannot be asked for options
        data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return f"{SOCKET_PEER}{_CREDENTIALS.unpack(data)[1]}", 0
