"""Files of jobs' working copies, for whoever brings them back: listed, and read piece by piece.

Links are never followed and nothing outside of a job's own directory is opened, whatever the job does meanwhile: every
part of a path is opened below the one before. Runs on the machine that has the files.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from swell.shim.files import Json

MAX_FILES = 100_000
MAX_NAMES_BYTES = 32 * 1024 * 1024
"""So much of a tree in one answer; it says that there is more."""
MAX_PIECE = 1024 * 1024
"""So much of a file at once, whatever was asked: memory stays flat."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class WorkingCopies:
    """`folder` holds one directory per job."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def tree(self, job: int, below: str) -> Json:
        """Plain files under `below`. `skipped`: files whose names are not UTF-8, or that cannot be looked at. `whole`:
        there are no more than these."""
        found: Json = {"files": [], "skipped": 0, "whole": True}
        length = 0
        folder = self._opened(job, _parts(below))
        try:
            for path, seen in _walk(folder):
                if seen is None or not _is_text(path):
                    found["skipped"] += 1
                elif stat.S_ISREG(seen.st_mode):
                    length += len(path)
                    if len(found["files"]) >= MAX_FILES or length > MAX_NAMES_BYTES:
                        return {**found, "whole": False}
                    found["files"].append([path, seen.st_size, seen.st_mtime_ns, stat.S_IMODE(seen.st_mode) & 0o777])
        finally:
            os.close(folder)
        return found

    def read(self, job: int, below: str, path: str, offset: int, limit: int) -> tuple[bytes, int, int]:
        """Bytes of a file under `below`, its size, and its inode: pieces of two files are never taken for one."""
        parts = _parts(path)
        if not parts:
            raise OSError(errno.EINVAL, "this names no file", path)
        folder = self._opened(job, _parts(below) + parts[:-1])
        try:
            file = os.open(parts[-1], _FILE, dir_fd=folder)
        finally:
            os.close(folder)
        try:
            seen = os.fstat(file)
            if not stat.S_ISREG(seen.st_mode):
                raise OSError(errno.EINVAL, "not a plain file", path)
            return os.pread(file, max(0, min(limit, MAX_PIECE)), offset), seen.st_size, seen.st_ino
        finally:
            os.close(file)

    def _opened(self, job: int, parts: list[str]) -> int:
        """A directory of the job's working copy."""
        folder = os.open(os.path.join(self._folder, str(int(job))), _FOLDER)
        for part in parts:
            try:
                below = os.open(part, _FOLDER, dir_fd=folder)
            finally:
                os.close(folder)
            folder = below
        return folder


def _parts(path: str) -> list[str]:
    """Of a path from the top of a working copy. Raises OSError for one that leads elsewhere."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or "\0" in path or not _is_text(path):
        raise OSError(errno.EINVAL, "not a path inside of the job's working copy", path)
    return parts


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _walk(folder: int) -> Iterator[tuple[str, os.stat_result | None]]:
    """Everything below that is no directory, by its path from there."""
    for place, subdirectories, names, fd in os.fwalk(".", dir_fd=folder):
        subdirectories.sort()
        for name in sorted(names):
            try:
                seen = os.lstat(name, dir_fd=fd)
            except OSError:
                yield os.path.join(place, name)[2:], None
            else:
                yield os.path.join(place, name)[2:], seen
