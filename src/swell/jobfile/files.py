"""The working directory as it was at submit: packed by the command line, unpacked by the daemon, named by its content.

A snapshot is a plain tar whose bytes depend only on names, contents and executable bits, so that its SHA-256 names the
content: the same files are sent once, and kept once (`contents`). Stdlib only, because the command line imports it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import tarfile
import tempfile
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from swell.jobfile.choosing import ALL, IGNORE_NAME, Wanted, choose
from swell.jobfile.contents import MTIME_S, copy_tree, share, sweep_contents
from swell.jobfile.unpacking import MIB, Room, SnapshotError, leads_inside, unpack

ARCHIVE_S = 3600.0
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A packed snapshot. `size` is of the archive, `content` of the files in it. `links_out` point out of the directory
    and are not packed. `left_out`: path -> the rule that left it out."""

    hash: str
    size: int
    content: int = 0
    names: frozenset[str]
    links_out: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def files(self) -> int:
        return len(self.names)

    @property
    def short(self) -> str:
        return self.hash[:7]


class _HashingFile:
    """Writes through to a file and hashes what passes."""

    def __init__(self, target: IO[bytes]) -> None:
        self._target = target
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self._digest.update(data)
        self.size += len(data)
        return self._target.write(data)

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def pack(root: Path, target: IO[bytes], *, max_mib: int, exclude: Sequence[Path] = (), wanted: Wanted = ALL) -> Packed:
    """Write the snapshot of `root` to `target`."""
    chosen = choose(root, exclude, wanted)
    content = _check_size(root, chosen.names, max_mib)
    room = Room(max_mib * MIB)
    for name in chosen.names:
        room.take(name)
    sink = _HashingFile(target)
    links_out = _write_tar(sink, root, chosen.names)
    return Packed(
        hash=sink.hexdigest(),
        size=sink.size,
        content=content,
        names=frozenset(chosen.names).difference(links_out),
        links_out=tuple(sorted(links_out)),
        left_out=chosen.left_out,
    )


def _write_tar(sink: _HashingFile, root: Path, names: Sequence[str]) -> list[str]:
    """The same bytes for the same names, contents and executable bits. Returns the links that it left out because they
    point outside."""
    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
        return [name for name in names if not _add(archive, root, name)]


def _add(archive: tarfile.TarFile, root: Path, name: str) -> bool:
    path = root / name
    info = tarfile.TarInfo(name)
    info.mtime = MTIME_S
    try:
        if path.is_symlink():
            return _add_link(archive, info, path)
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            info.size = found.st_size
            info.mode = 0o755 if found.st_mode & stat.S_IXUSR else 0o644
            archive.addfile(info, file)
    except FileNotFoundError:
        return True  # removed since it was listed: not part of the snapshot
    except OSError as error:
        raise SnapshotError(
            f"cannot read {path}: {error.strerror}; make it readable, or name it in {IGNORE_NAME}"
        ) from error
    return True


def _add_link(archive: tarfile.TarFile, info: tarfile.TarInfo, path: Path) -> bool:
    info.type = tarfile.SYMTYPE
    info.linkname = str(path.readlink())
    if not leads_inside(info.name, info.linkname):
        return False
    archive.addfile(info)
    return True


def _check_size(root: Path, names: Sequence[str], max_mib: int) -> int:
    """Total bytes of these files. Raises SnapshotError if it exceeds `max_mib`."""
    sizes = {name: (root / name).lstat().st_size for name in names if os.path.lexists(root / name)}
    total = sum(sizes.values())
    if total <= max_mib * MIB:
        return total
    largest = sorted(sizes, key=lambda name: -sizes[name])[:3]
    shown = ", ".join(f"{name} ({sizes[name] / MIB:,.0f} MiB)" for name in largest)
    raise SnapshotError(
        f"the files under {root} are {total / MIB:,.0f} MiB, more than the {max_mib} MiB of snapshot_max_mib; "
        f"the largest: {shown}. Name what the job does not need in {IGNORE_NAME}, raise snapshot_max_mib in "
        "config.yaml, or run in place with --no-snapshot"
    )


def is_hash(text: str) -> bool:
    return _HASH.fullmatch(text) is not None


def unpacked_path(files_dir: Path, content_hash: str) -> Path:
    return files_dir / content_hash


def _contents(files_dir: Path) -> Path:
    return files_dir / ".contents"


def adopt(files_dir: Path, content_hash: str, part: Path, *, max_mib: int) -> Path:
    """Unpack a verified upload and share the content of equal files with other snapshots. Safe to repeat."""
    final = unpacked_path(files_dir, content_hash)
    if not final.is_dir():
        fresh = Path(tempfile.mkdtemp(prefix=".unpack-", dir=files_dir))
        try:
            unpack(part, fresh, max_mib * MIB)
            share(fresh, _contents(files_dir))
            fresh.rename(final)
        except OSError:
            if not final.is_dir():  # else another upload of the same content was faster
                raise
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    os.utime(final)
    return final


def write_archive(files_dir: Path, content_hash: str, target: IO[bytes]) -> int:
    """The snapshot as a tar, for another machine: byte for byte the one that `pack` made. Returns its size."""
    root = unpacked_path(files_dir, content_hash)
    sink = _HashingFile(target)
    names = sorted(
        os.path.relpath(Path(directory, name), root)
        for directory, directories, files in os.walk(root)
        for name in (*files, *(name for name in directories if Path(directory, name).is_symlink()))
    )
    _write_tar(sink, root, names)
    return sink.size


def archive(files_dir: Path, content_hash: str) -> Path:
    """The snapshot as a tar file, made on demand; `sweep` deletes it an hour after its last use."""
    path = files_dir / f"{content_hash}.tar"
    if not path.exists():
        fd, name = tempfile.mkstemp(prefix=".archive-", dir=files_dir)
        with os.fdopen(fd, "wb") as file:
            write_archive(files_dir, content_hash, file)
        Path(name).replace(path)
    os.utime(path)
    return path


def copy_for_job(files_dir: Path, content_hash: str, target: Path) -> None:
    """A job's own copy of a snapshot, made once: attempts after the first find what the job wrote there."""
    if target.is_dir():
        return
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        fresh.chmod(0o755)
        copy_tree(unpacked_path(files_dir, content_hash), fresh)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def touch(files_dir: Path, content_hash: str) -> bool:
    """Whether this snapshot is here. If so, it counts as in use from now on: the caller is about to submit a job with
    it."""
    try:
        os.utime(unpacked_path(files_dir, content_hash))
    except FileNotFoundError:
        return False
    return True


def sweep(files_dir: Path, needed: Container[str], before_s: float) -> list[str]:
    """Delete snapshots that are not in `needed` and were not used since `before_s`, and archives unused for an hour.
    Returns the hashes of the deleted snapshots."""
    for packed in files_dir.glob("*.tar"):
        if packed.stat().st_mtime < time.time() - ARCHIVE_S:
            packed.unlink(missing_ok=True)
    stale = [
        path.name
        for path in sorted(files_dir.iterdir())
        if is_hash(path.name) and path.name not in needed and path.stat().st_mtime < before_s
    ]
    for content_hash in stale:
        shutil.rmtree(unpacked_path(files_dir, content_hash), ignore_errors=True)
    sweep_contents(_contents(files_dir))
    return stale
