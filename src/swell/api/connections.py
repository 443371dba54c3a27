"""HTTP connections as uvicorn has them, with a bound on how long and how large the head of a request may be.

Without one, a client that sends a byte now and then, or nothing, keeps its connection for ever."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_S = 20.0
MAX_HEAD = 64 * 1024


class BoundedProtocol(HttpToolsProtocol):
    """The timer runs from the connection, or the first byte after an answer, to the end of the request's headers."""

    _timer: asyncio.TimerHandle | None = None
    _head: int | None = None
    """Bytes of the head so far; None outside of one. (The rest of a body that was refused is no head.)"""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
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
