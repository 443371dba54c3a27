"""Outputs of a job: finds the files that it wrote in its working copy, apart from those that were submitted, and copies
them to where its user wants them.

Standard library only, because the command line imports it. Links are never followed and never copied: they might lead
anywhere."""

from __future__ import annotations

import filecmp
import fnmatch
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from swell.core.errors import SwellError
from swell.jobfile.contents import MTIME_S, plain_files

MAX_FILES = 100_000
MAX_TRIES = 100
_NOT_OUTPUT = ("__pycache__",)


class FetchError(SwellError):
    """Nothing was copied; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    files: int = 0
    bytes: int = 0


def disk_use(path: Path, *, links: int | None = None) -> DiskUse:
    """Of everything below, as far as it can be read; one file with several names counts once. With `links`, only of
    files, and at most as many names as there is room for."""
    seen: dict[int, int] = {}
    for _, found in plain_files(path):
        if links is None or found.st_nlink <= links:
            seen[found.st_ino] = found.st_blocks * 512
    return DiskUse(files=len(seen), bytes=sum(seen.values()))


def _walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Plain files below, by their path from there; links are not followed."""
    for directory, subdirectories, names in os.walk(root):
        subdirectories[:] = sorted(name for name in subdirectories if name not in _NOT_OUTPUT)
        for name in sorted(names):
            path = os.path.join(directory, name)  # noqa: PTH118 - half the cost, for many files
            try:
                found = os.lstat(path)
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode):
                yield os.path.relpath(path, root), found


def written(directory: Path, snapshot: Path | None) -> list[str]:
    """Files in the working copy that were not submitted, or have changed since."""
    return [name for name, _ in _walk(directory) if snapshot is None or not _same(directory / name, snapshot / name)]


def wrote_anything(directory: Path, snapshot: Path | None) -> bool:
    """The same by names and sizes alone, and only whether there is one: fast for large directories."""
    return any(snapshot is None or _size(snapshot / name) != found.st_size for name, found in _walk(directory))


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return -1


def unchanged(name: str, size: int, mtime_ns: int, snapshot: Path, here: Path | None) -> bool:
    """Is a file of a working copy as it was submitted? Those on other machines keep the time of the archive until they
    are written to; of one that is `here`, the content tells."""
    if _size(snapshot / name) != size:
        return False
    return mtime_ns == MTIME_S * 10**9 if here is None else _same(here / name, snapshot / name)


def is_inside(path: str) -> bool:
    """A machine's word decides nothing about where files are written here."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\0" not in path


def is_output(name: str) -> bool:
    """Not what Python keeps for itself."""
    return not any(part in _NOT_OUTPUT for part in PurePosixPath(name).parts[:-1])


def _same(path: Path, submitted: Path) -> bool:
    try:
        return submitted.is_file() and filecmp.cmp(path, submitted, shallow=False)
    except OSError:
        return False


def matching(directory: Path, patterns: Sequence[str]) -> list[str]:
    """Files in the working copy: `*.pt` anywhere, `results` or `results/` and all below, `logs/*.txt` from the top."""
    return [name for name, _ in _walk(directory) if matches(name, patterns)]


def matches(name: str, patterns: Sequence[str]) -> bool:
    return any(_matches(name, pattern) for pattern in patterns)


def _matches(name: str, pattern: str) -> bool:
    bare = pattern.strip("/").removeprefix("./")
    parts = PurePosixPath(name).parts
    heads = ("/".join(parts[:n]) for n in range(1, len(parts) + 1))
    return any(fnmatch.fnmatchcase(head, bare) for head in heads) or fnmatch.fnmatchcase(parts[-1], bare)


def deliver(
    directory: Path, patterns: Sequence[str], target: Path, name: str, submitted: Path | None = None
) -> tuple[Path, list[str], int]:
    """Copy what the job wrote and matches to `target`: where, which files, how many bytes. What is there already and
    differs is left alone: then all of it goes into a directory `name` there, or `name.2`, …, so that files of one job
    stay together."""
    own, below = target.resolve(), directory.resolve()
    new = (n for n in matching(directory, patterns) if submitted is None or not _same(directory / n, submitted / n))
    names = [n for n in new if own == below or not (below / n).is_relative_to(own)]
    if own == below:
        return target, names, 0
    tried = (target, target / name, *(target / f"{name}.{number}" for number in range(2, MAX_TRIES)))
    for into in tried:
        missing = [n for n in names if not _same(directory / n, into / n)]
        if not any(os.path.lexists(into / n) for n in missing):
            return into, names, copy(directory, missing, into, replace=False)
    raise FetchError(f"{target} has {MAX_TRIES} directories {name} with other files in them; remove some")


def copy(directory: Path, names: Sequence[str], target: Path, *, replace: bool) -> int:
    """Copy these files below `target`, each whole or not at all; how many bytes. Refuses before it writes anything."""
    total = check_room({name: (directory / name).lstat().st_size for name in names}, target, replace=replace)
    for name in names:
        _copy_one(directory / name, target / name)
    return total


def check_room(sizes: Mapping[str, int], target: Path, *, replace: bool) -> int:
    """How many bytes these files have. Makes the directory; refuses what does not fit, or is there already."""
    if len(sizes) > MAX_FILES:
        raise FetchError(f"these are {len(sizes):,} files; name fewer, such as 'results/*.csv' (at most {MAX_FILES:,})")
    target.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(target).free
    total = sum(sizes.values())
    if total > free:
        raise FetchError(f"these are {total:,} bytes and {target} has room for {free:,}; name fewer files")
    there = [name for name in sizes if os.path.lexists(target / name)]
    if there and not replace:
        named = f"{target / there[0]} and {len(there) - 1} more are" if len(there) > 1 else f"{target / there[0]} is"
        raise FetchError(f"{named} there already; use --replace, or another directory with --into")
    return total


def _copy_one(source: Path, target: Path) -> None:
    """Beside its place first: what is half copied never has the name of something whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name[:200]}.part")
    part.unlink(missing_ok=True)
    try:
        with _opened(source) as file, part.open("xb") as copied:
            shutil.copyfileobj(file, copied)
            os.fchmod(copied.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o777)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _opened(path: Path) -> IO[bytes]:
    """A plain file: one that became a link since it was listed is refused by the system."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")
