"""How far the log went, in a small file beside a SQLite database.

SQLite treats a write-ahead log that was cut or deleted as if it had never existed, and drops its content silently.
This file is written after every commit and not synced, so after a power cut it may be behind; it is never ahead.
"""

from __future__ import annotations

import logging
import os
import zlib
from pathlib import Path

log = logging.getLogger(__name__)

_SIZE = 63


class Watermark:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._failed = False

    def write(self, seq: int, chain: bytes) -> None:
        try:
            if self._fd is None:
                self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._fd, _line(seq, chain), 0)
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.warning("%s is behind from now on; a log that is cut would not be noticed: %s", self.path, error)
            self._failed = True

    def read(self) -> tuple[int, bytes] | None:
        """None if there is none, or none that is whole."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            seq, chain = int(text[:20]), bytes.fromhex(text[21:53].decode("ascii"))
        except ValueError:
            seq, chain = -1, b""
        if text != _line(seq, chain):
            log.warning("%s is damaged and is written anew; it tells only how far the log went", self.path)
            return None
        return seq, chain

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _line(seq: int, chain: bytes) -> bytes:
    text = f"{seq:020d} {chain.hex():>32}".encode("ascii")
    return text + f" {zlib.crc32(text):08x}\n".encode("ascii")
