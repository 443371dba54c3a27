"""A relay in front of a sshd that holds bytes back: what `tc netem delay` does, where the kernel does not have it."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import selectors
import socket
import threading
import time


class SlowLink:
    """Listens on the network's own address. `delay_s` may change at any time and counts for bytes that come after;
    order is kept. `close` ends it and its connections."""

    def __init__(self, listen: str, to: tuple[str, int]) -> None:
        self.delay_s = 0.0
        self._to = to
        self._server = socket.create_server((listen, 0))
        self.address, self.port = self._server.getsockname()[:2]
        self._sockets: list[socket.socket] = []
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._thread.join(10)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._server.accept()
                machine = socket.create_connection(self._to, timeout=30)
            except OSError:
                if self._closed.is_set():
                    return
                continue
            self._sockets += [client, machine]
            threading.Thread(target=self._relay, args=(client, machine), daemon=True).start()

    def _relay(self, client: socket.socket, machine: socket.socket) -> None:
        due: list[tuple[float, int, socket.socket, bytes]] = []
        order = itertools.count()
        latest_s = 0.0
        with contextlib.suppress(OSError, ValueError), selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, machine)
            selector.register(machine, selectors.EVENT_READ, client)
            while not self._closed.is_set():
                wait_s = max(0.0, due[0][0] - time.monotonic()) if due else 0.2
                for key, _ in selector.select(min(wait_s, 0.2)):
                    assert isinstance(key.fileobj, socket.socket)
                    data = key.fileobj.recv(65536)
                    latest_s = max(latest_s, time.monotonic() + self.delay_s)
                    heapq.heappush(due, (latest_s, next(order), key.data, data))
                    if not data:
                        selector.unregister(key.fileobj)
                while due and due[0][0] <= time.monotonic():
                    _, _, to, data = heapq.heappop(due)
                    if not data:
                        to.shutdown(socket.SHUT_WR)
                        continue
                    to.sendall(data)
        for each in (client, machine):
            each.close()
