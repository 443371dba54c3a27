"""Directories of jobs that run as their submitter: each belongs to its user, and nobody else looks into it.

The daemon is root then. It changes the owner only of what no process of the user has touched yet: later the user could
have put a link to somebody else's file in its place."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from pathlib import Path

from swell.core.state import JobRecord
from swell.executors.request import LaunchContext, checkpoints, journal

PASSAGE = 0o711
"""Others may go through to what is theirs, and list nothing."""


def open_ways(home: Path, folders: Iterable[Path]) -> None:
    """Let users reach their own directories below the daemon's home. Raises OSError if they cannot reach the home."""
    for parent in home.parents:
        if not parent.stat().st_mode & 0o001:
            raise PermissionError(
                f"run_as: submitter keeps jobs below {home}, and other users cannot pass {parent}; "
                "use a home elsewhere (swell serve --home /var/lib/swell)"
            )
    for folder in (home, *folders):
        folder.chmod(PASSAGE)


def make_readable(folder: Path) -> None:
    """The in-job library, for everybody."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)


def hand_over(record: JobRecord, context: LaunchContext) -> None:
    """Give the job's own directories, and the place where its library notes progress, to its user."""
    assert record.run is not None
    account = pwd.getpwnam(record.spec.user)
    owner = (account.pw_uid, account.pw_gid)
    _give(Path(context.work_dir, str(record.id)), owner)
    if not record.spec.checkpoint_dir:
        _give(Path(checkpoints(record, context)), owner)
    noted = Path(journal(record.run.id, context))
    noted.parent.mkdir(mode=PASSAGE, exist_ok=True)
    noted.parent.chmod(PASSAGE)
    _give_file(noted, owner)


def _give(folder: Path, owner: tuple[int, int]) -> None:
    """The folder itself last: while it is ours, no other user has been inside."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if os.lstat(folder).st_uid != os.geteuid() or owner[0] == os.geteuid():
        return
    for path, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(Path(path, name), *owner, follow_symlinks=False)
    os.chown(folder, *owner)


def _give_file(path: Path, owner: tuple[int, int]) -> None:
    """Below a directory of ours, so that no other user can have put something in its place."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchown(fd, *owner)
    finally:
        os.close(fd)
