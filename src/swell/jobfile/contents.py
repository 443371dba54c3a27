"""Content kept once: files of snapshots are links to one file per content, and working copies are copies.

Nobody writes to a snapshot, so links between snapshots are safe. A job writes into its working copy, so that never
shares a file with anything; where the file system can (btrfs, XFS), it shares blocks until either side is written.
Stdlib only. Called in threads, several at once."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

READ_BYTES = 1 << 20
MTIME_S = 1_577_836_800  # of files in archives; 2020-01-01: a time that no tool stumbles over, the same for all
_CANNOT_CLONE = frozenset({errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.ETXTBSY})


def share(directory: Path, contents: Path) -> None:
    """Turn every plain file below into a link to the one file in `contents` that has the same bytes and mode."""
    contents.mkdir(mode=0o700, exist_ok=True)
    for path, found in plain_files(directory):
        executable = bool(found.st_mode & stat.S_IXUSR)
        path.chmod(0o555 if executable else 0o444)  # nobody writes to a snapshot, by accident neither
        with contextlib.suppress(OSError):  # too many links to one file, or a file system without: it stays by itself
            _link(path, contents / (_digest(path) + ("x" if executable else "")))


def _link(path: Path, content: Path) -> None:
    """`path` becomes another name of `content`, or the first one."""
    part = path.with_name(f".{path.name[:200]}.link")
    try:
        os.link(content, part)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):  # the same content came from elsewhere at this moment
            os.link(path, content)
        return
    part.replace(path)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(READ_BYTES):
            digest.update(data)
    return digest.hexdigest()


def sweep_contents(contents: Path) -> int:
    """Delete content that no snapshot has any more; how many bytes of disk came free."""
    freed = 0
    for path, found in plain_files(contents):
        if found.st_nlink == 1:
            path.unlink(missing_ok=True)
            freed += found.st_blocks * 512
    return freed


def copy_tree(source: Path, target: Path) -> None:
    """A copy to write into: no file of it is a file of the source. Links are copied as links."""
    for directory, names, files in os.walk(source):
        here = target / os.path.relpath(directory, source)
        for name in (*names, *files):
            path = Path(directory, name)
            if path.is_symlink():
                (here / name).symlink_to(path.readlink())
            elif path.is_dir():
                (here / name).mkdir()
            else:
                _copy(path, here / name)


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as file, target.open("xb") as copied:
        found = os.fstat(file.fileno())
        try:
            left = found.st_size
            while left and (done := os.copy_file_range(file.fileno(), copied.fileno(), left)):
                left -= done
        except OSError as error:
            if error.errno not in _CANNOT_CLONE:
                raise
            file.seek(0)
            copied.seek(0)
            copied.truncate()
            shutil.copyfileobj(file, copied)
        os.fchmod(copied.fileno(), 0o755 if found.st_mode & stat.S_IXUSR else 0o644)


def plain_files(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Plain files below, as far as they can be seen; links are not followed."""
    for directory, _, names in os.walk(root):
        for name in names:
            path = Path(directory, name)
            with contextlib.suppress(OSError):
                found = path.lstat()
                if stat.S_ISREG(found.st_mode):
                    yield path, found
