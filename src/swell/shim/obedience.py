"""Which daemon a machine obeys: the newest one. Each daemon has a higher store epoch than the one before it, and a
machine refuses commands of a lower one than it has seen. Runs on that machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator


class Fenced(Exception):
    """A newer daemon commands this machine."""


class Obedience:
    """A file with the highest epoch seen. Whoever acts on a command holds it (shared): a newer daemon that announces
    itself waits for what is under way, and nothing of an older one begins after that."""

    def __init__(self, path: str) -> None:
        self._path = path

    def announce(self, epoch: int) -> None:
        with self._opened(fcntl.LOCK_EX) as fd:
            known = _read(fd)
            if known > epoch:
                raise Fenced(_why(known, epoch))
            os.ftruncate(fd, 0)
            os.pwrite(fd, str(epoch).encode(), 0)
            os.fsync(fd)

    @contextlib.contextmanager
    def obeyed(self, epoch: int) -> Iterator[None]:
        with self._opened(fcntl.LOCK_SH) as fd:
            known = _read(fd)
            if known > epoch:
                raise Fenced(_why(known, epoch))
            yield

    @contextlib.contextmanager
    def _opened(self, how: int) -> Iterator[int]:
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, how)
            yield fd
        finally:
            os.close(fd)


def _read(fd: int) -> int:
    text = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
    return int(text) if text.isdigit() else 0


def _why(known: int, epoch: int) -> str:
    return f"it obeys a newer daemon (store epoch {known}; this one has {epoch})"
