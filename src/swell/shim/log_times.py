"""When a log grew: pairs of (seconds since 1970, size) in `log.times` beside it, so that a reader can begin at a time.

A worker writes its log itself, without times, so the process that holds the worker notes the size now and then.
What is found by a time may begin a few seconds early; it is never late.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from typing import BinaryIO

from swell.shim.files import create

NAME = "log.times"
LOOK_BACK = 64 * 1024
"""How far the start of a line is looked for."""
_PAIR = struct.Struct("<dQ")


class LogTimes:
    """Writes the pairs of one log, at most one per `every_s`. Best effort: a full disk costs the times only."""

    def __init__(self, directory: str, every_s: float) -> None:
        self._directory = directory
        self._every_s = every_s
        self._at_s = 0.0
        self._size = 0

    def look(self) -> None:
        """Note how large the log is now, unless that was done a moment ago."""
        at_s = time.time()
        if self._due(at_s):
            with contextlib.suppress(OSError):
                self.note(at_s, os.stat(os.path.join(self._directory, "log")).st_size)

    def note(self, at_s: float, size: int) -> None:
        """All up to `size` was there at that time."""
        if size == self._size or not self._due(at_s):
            return
        with contextlib.suppress(OSError):
            fd = create(self._directory, NAME)
            try:
                end = os.fstat(fd).st_size
                os.pwrite(fd, _PAIR.pack(at_s, size), end - end % _PAIR.size)  # over what a full disk cut short
            finally:
                os.close(fd)
            self._at_s, self._size = at_s, size

    def _due(self, at_s: float) -> bool:
        """A clock that was set back does not end the notes."""
        return abs(at_s - self._at_s) >= self._every_s


def begin_of(directory: str, age_s: float) -> int:
    """Where in the log begins what was written within the last `age_s`, at the start of a line."""
    since_s = time.time() - age_s
    try:
        with open(os.path.join(directory, "log"), "rb") as log:
            found = os.fstat(log.fileno())
            if found.st_mtime < since_s:
                return found.st_size
            return _line_start(log, min(_size_at(directory, since_s), found.st_size))
    except FileNotFoundError:
        return 0


def _size_at(directory: str, since_s: float) -> int:
    """By the last pair before the first that is later: where the clock was set, rather too early than too late."""
    size = 0
    with contextlib.suppress(FileNotFoundError), open(os.path.join(directory, NAME), "rb") as file:
        data = file.read()
        for at_s, noted in _PAIR.iter_unpack(data[: len(data) - len(data) % _PAIR.size]):
            if at_s > since_s:
                break
            size = noted
    return size


def _line_start(log: BinaryIO, offset: int) -> int:
    """Of the line that the byte before `offset` does not end. What progress bars draw over counts as a line."""
    begin = max(0, offset - LOOK_BACK)
    log.seek(begin)
    before = log.read(offset - begin)
    end = max(before.rfind(b"\n"), before.rfind(b"\r"))
    if end < 0:
        return offset if begin else 0
    return begin + end + 1
