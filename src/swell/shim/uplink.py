"""Carries what trainings on this machine say to the daemon, and its answers back: bytes, by stream. Knows no HTTP.

Trainings connect to a Unix socket that only their own user can reach. While no agent listens there, or the link is
down, the in-job library keeps what it has to say and tries again.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
from collections.abc import Callable

from swell.shim.files import Json
from swell.shim.host import bind_private

CHUNK = 64 * 1024
MAX_STREAMS = 1024
SEND_S = 5.0
"""A training that does not take its answer for so long is hung up on."""


def socket_in(cluster: str) -> str:
    """Where trainings find the daemon. Alone in its directory, which containers get to see as a whole: a socket that a
    later agent makes in its place is seen there too."""
    return f"{cluster}/link/daemon"


class Uplink:
    """`send(message, data)` passes frames to the daemon. One thread reads all sockets."""

    def __init__(self, path: str, send: Callable[[Json, bytes], None]) -> None:
        self._send = send
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        bind_private(self._listener, path)
        self._listener.listen(512)
        self._streams: dict[int, socket.socket] = {}
        self._last = 0
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, 0)

    def start(self) -> None:
        threading.Thread(target=self._run, name="uplink", daemon=True).start()

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data:
                    self._read(key.data)
                else:
                    self._accept()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            taken, _ = self._listener.accept()
            if len(self._streams) >= MAX_STREAMS:
                taken.close()
                return
            taken.settimeout(SEND_S)
            self._last += 1
            self._streams[self._last] = taken
            self._selector.register(taken, selectors.EVENT_READ, self._last)

    def _read(self, stream: int) -> None:
        taken = self._streams.get(stream)
        if taken is None:
            return
        try:
            data = taken.recv(CHUNK)
        except OSError:
            data = b""
        self._send({"stream": stream, "end": not data}, data)
        if not data:
            self._close(stream)

    def answer(self, message: Json, data: bytes) -> None:
        """What the daemon says on a stream."""
        stream = int(message["stream"])
        taken = self._streams.get(stream)
        if taken is None:
            return
        try:
            taken.sendall(data)
        except OSError:
            self._hang_up(taken)
        if message.get("end"):
            self._hang_up(taken)

    def _hang_up(self, taken: socket.socket) -> None:
        """The thread that reads it finds its end, and closes it."""
        with contextlib.suppress(OSError):
            taken.shutdown(socket.SHUT_RDWR)

    def _close(self, stream: int) -> None:
        taken = self._streams.pop(stream, None)
        if taken is not None:
            self._selector.unregister(taken)
            taken.close()
