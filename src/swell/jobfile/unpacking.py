"""Unpacks an untrusted tar into one directory: never outside of it, never more than the limits allow.

The limits apply to the unpacked size and are checked before each file is written. Standard library only, because the
command line imports it.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from swell.core.errors import SwellError

MAX_FILES = 50_000
"""Files and links; the directories that hold them may be as many again."""
MAX_DEPTH = 64
MAX_PART_BYTES = 255
MAX_NAME_BYTES = 2048
MIB = 1 << 20
_PLAIN = (tarfile.REGTYPE, tarfile.AREGTYPE)


class SnapshotError(SwellError):
    """The files cannot be taken (too many, too large, unreadable) or an archive is not one of ours."""


class SnapshotTooLarge(SnapshotError):
    """More bytes or more files than a snapshot may have."""


class Room:
    """The limits of one snapshot. Call `take` for each file before you write or read it: it refuses what exceeds
    them."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._left = max_bytes
        self._files: set[tuple[str, ...]] = set()
        self._directories: set[tuple[str, ...]] = set()

    def take(self, name: str, size: int = 0) -> None:
        parts = _parts(name)
        self._count(name, parts)
        if size < 0:
            raise SnapshotError(f"{_shown(name)} in the snapshot claims to have {size} bytes")
        self._left -= size
        if self._left < 0:
            raise SnapshotTooLarge(
                f"the snapshot holds more than {self._max_bytes / MIB:,.0f} MiB once unpacked; name what the job does "
                "not need in .swellignore, or raise snapshot_max_mib in the daemon's config.yaml"
            )

    def _count(self, name: str, parts: tuple[str, ...]) -> None:
        if parts in self._files:
            raise SnapshotError(f"{name!r} is in the snapshot twice")
        directories = [parts[:end] for end in range(1, len(parts))]
        if parts in self._directories or not self._files.isdisjoint(directories):
            raise SnapshotError(f"{name!r} in the snapshot is both a file and a directory")
        self._files.add(parts)
        self._directories.update(directories)
        if max(len(self._files), len(self._directories)) > MAX_FILES:
            raise SnapshotTooLarge(
                f"the snapshot has more than {MAX_FILES:,} files or directories; name what the job does not need in "
                ".swellignore, or run in place with --no-snapshot"
            )


def _parts(name: str) -> tuple[str, ...]:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise SnapshotError(f"{_shown(name)} in the snapshot is not a path inside of it")
    if len(path.parts) > MAX_DEPTH:
        raise SnapshotError(f"{_shown(name)} in the snapshot lies more than {MAX_DEPTH} directories deep")
    if len(os.fsencode(name)) > MAX_NAME_BYTES or max(len(os.fsencode(part)) for part in path.parts) > MAX_PART_BYTES:
        raise SnapshotError(
            f"{_shown(name)} in the snapshot is too long; a name may have {MAX_PART_BYTES} bytes, and {MAX_NAME_BYTES} "
            "with its directories"
        )
    return path.parts


def _shown(name: str) -> str:
    return repr(name if len(name) <= 120 else f"{name[:120]}…")


def unpack(archive: Path, target: Path, max_bytes: int) -> None:
    """Only plain files and links that stay inside; links come last, so that nothing is ever written through one."""
    target.chmod(0o755)
    room = Room(max_bytes)
    links: list[tarfile.TarInfo] = []
    with archive.open("rb") as file, _opened(file) as packed:
        for info in _members(packed):
            room.take(info.name, info.size)
            if info.issym():
                links.append(info)
            elif info.type in _PLAIN and not info.issparse():
                _write(packed, info, target)
            else:
                raise SnapshotError(f"{_shown(info.name)} in the snapshot is neither a plain file nor a link")
    _make_links(target, links)


class _Headers:
    """A file that refuses large single reads: the tar module reads a header in one go, whatever length it claims."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= MIB:
            raise SnapshotError(f"a header in the snapshot claims to have {size:,} bytes")
        return self._file.read(size)


def _opened(file: IO[bytes]) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=_Headers(file), mode="r:")  # type: ignore[call-overload,no-any-return]
    except (SnapshotError, OSError):
        raise
    except Exception as error:
        raise _not_ours(error) from error


def _members(packed: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while True:
        try:
            info = packed.next()
        except (SnapshotError, OSError):
            raise
        except Exception as error:  # the tar module raises all sorts of things over headers that make no sense
            raise _not_ours(error) from error
        if info is None:
            return
        yield info


def _not_ours(error: Exception) -> SnapshotError:
    return SnapshotError(
        f"the snapshot is not a tar file that Swell made ({type(error).__name__}: {str(error)[:200]!r})"
    )


def _write(packed: tarfile.TarFile, info: tarfile.TarInfo, target: Path) -> None:
    source = packed.extractfile(info)
    assert source is not None, "a plain file has content"
    path = target / info.name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        try:
            shutil.copyfileobj(source, file)
        except tarfile.TarError as error:
            raise _not_ours(error) from error
    path.chmod(0o755 if info.mode & stat.S_IXUSR else 0o644)


def _make_links(target: Path, links: Sequence[tarfile.TarInfo]) -> None:
    for info in links:
        if not leads_inside(info.name, info.linkname):
            raise SnapshotError(
                f"the link {_shown(info.name)} in the snapshot points outside of it, to {_shown(info.linkname)}"
            )
        path = target / info.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(info.linkname)
    root = target.resolve()
    for info in links:  # chains of links can lead out although each looks harmless
        if not _lands(target / info.name).is_relative_to(root):
            raise SnapshotError(f"the link {_shown(info.name)} in the snapshot leads out of it")


def _lands(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except RecursionError as error:
        raise SnapshotError(f"the link {_shown(path.name)} in the snapshot begins too long a chain of links") from error


def leads_inside(name: str, link: str) -> bool:
    if not link or "\0" in link or len(os.fsencode(link)) > MAX_NAME_BYTES or PurePosixPath(link).is_absolute():
        return False
    landed = os.path.normpath(PurePosixPath(name).parent / link)
    return landed != ".." and not landed.startswith("../")
