"""The working directory as it was at submit: packed by the command line, unpacked by the daemon, named by its content.

A snapshot is a plain tar whose bytes depend only on names, contents and executable bits, so that its SHA-256 names the
content: the same files are sent and kept once. Stdlib only, because the command line imports it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from swell.jobfile.choosing import IGNORE_NAME, choose
from swell.jobfile.unpacking import MIB, Room, SnapshotError, leads_inside, unpack

_HASH = re.compile(r"[0-9a-f]{64}")
_MTIME_S = 1_577_836_800  # 2020-01-01: a time that no tool stumbles over, the same for all


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """`links_out` point out of the directory: a copy of it cannot follow them. `left_out`: path -> what left it out."""

    hash: str
    size: int
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


def pack(
    root: Path, target: IO[bytes], *, max_mib: int, exclude: Sequence[Path] = (), include: Sequence[str] = ()
) -> Packed:
    """Write the snapshot of `root` to `target`. `include`: what is taken although something leaves it out."""
    chosen = choose(root, exclude, include)
    _check_size(root, chosen.names, max_mib)
    room = Room(max_mib * MIB)
    sink = _HashingFile(target)
    links_out: list[str] = []
    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
        for name in chosen.names:
            room.take(name)
            if not _add(archive, root, name):
                links_out.append(name)
    return Packed(
        hash=sink.hexdigest(),
        size=sink.size,
        names=frozenset(chosen.names).difference(links_out),
        links_out=tuple(sorted(links_out)),
        left_out=chosen.left_out,
    )


def _add(archive: tarfile.TarFile, root: Path, name: str) -> bool:
    path = root / name
    info = tarfile.TarInfo(name)
    info.mtime = _MTIME_S
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


def _check_size(root: Path, names: Sequence[str], max_mib: int) -> None:
    sizes = {name: (root / name).lstat().st_size for name in names if os.path.lexists(root / name)}
    total = sum(sizes.values())
    if total <= max_mib * MIB:
        return
    largest = sorted(sizes, key=lambda name: -sizes[name])[:3]
    shown = ", ".join(f"{name} ({sizes[name] / MIB:,.0f} MiB)" for name in largest)
    raise SnapshotError(
        f"the files under {root} are {total / MIB:,.0f} MiB, more than the {max_mib} MiB of snapshot_max_mib; "
        f"the largest: {shown}. Name what the job does not need in {IGNORE_NAME}, raise snapshot_max_mib in "
        "config.yaml, or run in place with --no-snapshot"
    )


def is_hash(text: str) -> bool:
    return _HASH.fullmatch(text) is not None


def archive_path(files_dir: Path, content_hash: str) -> Path:
    return files_dir / f"{content_hash}.tar"


def unpacked_path(files_dir: Path, content_hash: str) -> Path:
    return files_dir / content_hash


def adopt(files_dir: Path, content_hash: str, part: Path, *, max_mib: int) -> Path:
    """Keep a verified upload: unpack it beside the others, then give both their names. Told twice, done once."""
    final = unpacked_path(files_dir, content_hash)
    if not final.is_dir():
        fresh = Path(tempfile.mkdtemp(prefix=".unpack-", dir=files_dir))
        try:
            unpack(part, fresh, max_mib * MIB)
            fresh.rename(final)
        except OSError:
            if not final.is_dir():  # else somebody was faster, with the same content
                raise
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    part.replace(archive_path(files_dir, content_hash))
    return final


def copy_for_job(files_dir: Path, content_hash: str, target: Path) -> None:
    """A job's own copy of a snapshot, made once: attempts after the first find what the job wrote there."""
    if target.is_dir():
        return
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        archive = archive_path(files_dir, content_hash)
        unpack(archive, fresh, archive.stat().st_size)  # within the limit that held when it was sent
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def touch(files_dir: Path, content_hash: str) -> bool:
    """Is this snapshot here? Then it is in use from now on: whoever asked is about to submit a job with it."""
    try:
        os.utime(archive_path(files_dir, content_hash))
    except FileNotFoundError:
        return False
    return unpacked_path(files_dir, content_hash).is_dir()


def sweep(files_dir: Path, needed: Container[str], before_s: float) -> list[str]:
    """Delete snapshots that no job in `needed` starts from and nobody asked for since `before_s`; their hashes."""
    stale = [
        archive.stem
        for archive in sorted(files_dir.glob("*.tar"))
        if is_hash(archive.stem) and archive.stem not in needed and archive.stat().st_mtime < before_s
    ]
    for content_hash in stale:
        archive_path(files_dir, content_hash).unlink(missing_ok=True)
        shutil.rmtree(unpacked_path(files_dir, content_hash), ignore_errors=True)
    return stale
