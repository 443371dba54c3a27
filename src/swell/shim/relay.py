"""Ports of the machine that lead to ports of a job with an image: TCP, passed on by a process of the run's own.
Standard library only."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading

CHUNK = 65536
INSIDE = "127.0.0.1"
"""Containers have the machine's network."""


class Relay:
    """Listens from the start, so that a port that is in use fails the run before its container begins."""

    def __init__(self, ports: dict[str, str]) -> None:
        pairs = [(int(host), int(inside)) for host, inside in ports.items() if host != inside]
        self._listeners = [(_listen(host), inside) for host, inside in pairs]

    def start(self, unwanted: int) -> None:
        """In a child, which ends with the run, whose member it is. It must not keep the descriptor `unwanted` open."""
        if not self._listeners:
            return
        if os.fork() == 0:
            os.close(unwanted)
            for listener, inside in self._listeners[1:]:
                threading.Thread(target=_accept, args=(listener, inside), daemon=True).start()
            _accept(*self._listeners[0])
            os._exit(0)
        for listener, _ in self._listeners:
            listener.close()


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("", port))
        listener.listen(64)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise OSError(error.errno, f"port {port} of the machine is in use") from None
        raise
    return listener


def _accept(listener: socket.socket, inside: int) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_serve, args=(client, inside), daemon=True).start()


def _serve(client: socket.socket, inside: int) -> None:
    with client, contextlib.suppress(OSError), socket.create_connection((INSIDE, inside)) as server:
        back = threading.Thread(target=_copy, args=(server, client), daemon=True)
        back.start()
        _copy(client, server)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(CHUNK):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
