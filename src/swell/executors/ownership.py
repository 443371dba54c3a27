"""Directories of jobs that run as their submitter: each belongs to its user and is closed to others.

The daemon is root then. It changes the owner only of files that no process of the user could have touched yet: later
the user could have replaced one by a link to another user's file."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from pathlib import Path

from swell.core.state import JobRecord
from swell.executors.request import LaunchContext, checkpoints, journal

PASSAGE = 0o711
"""Others may pass through to their own directories, but not list the content."""


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
    """Make the in-job library readable for all users."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)


def hand_over(record: JobRecord, context: LaunchContext) -> None:
    """Make its user the owner of the job's directories and of the file for its progress."""
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
    """The folder itself last: as long as the daemon owns it, no other user has been inside."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if os.lstat(folder).st_uid != os.geteuid() or owner[0] == os.geteuid():
        return
    for path, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(Path(path, name), *owner, follow_symlinks=False)
    os.chown(folder, *owner)


def _give_file(path: Path, owner: tuple[int, int]) -> None:
    """Create a file for its user. It is in a directory of the daemon, so no other user can have replaced it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchown(fd, *owner)
    finally:
        os.close(fd)
