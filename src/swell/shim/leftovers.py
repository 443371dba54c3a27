"""What jobs leave on a machine: directories of their runs, working copies, checkpoints. Found and deleted by job id, in
directories that are Swell's own; what a user named is not among them. Deleting may end at any moment and begin again.
Runs on that machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

JOB_ID = "[1-9][0-9]{0,11}"
"""The same as `core.ids.JOB_ID`, which this may not import."""
_OF_RUN = re.compile(rf"({JOB_ID})\.[0-9]+")
_OF_JOB = re.compile(rf"({JOB_ID})|\.({JOB_ID})-[a-z0-9_]{{8}}")
"""`7`, or a copy for job 7 that a crash left half made (see jobfile.files.copy_for_job). Not `7-backup`."""


class Leftovers(NamedTuple):
    runs_dir: Path  # holds one directory per run: 7.2
    job_dirs: tuple[Path, ...] = ()  # each holds one directory per job: 7

    def kept(self) -> list[int]:
        """Jobs of which there is something, ascending."""
        return sorted({job for job, _, _ in self._all()})

    def delete(self, job: int) -> None:
        """Raises OSError if something cannot be deleted; the rest is deleted all the same."""
        failed: OSError | None = None
        for path in [directory / name for other, directory, name in self._all() if other == job]:
            try:
                _delete(path)
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed

    def _all(self) -> Iterator[tuple[int, Path, str]]:
        """By name only, for there may be tens of thousands, and a start waits for them."""
        for directory, pattern in ((self.runs_dir, _OF_RUN), *((own, _OF_JOB) for own in self.job_dirs)):
            with contextlib.suppress(FileNotFoundError):
                for name in os.listdir(directory):
                    if match := pattern.fullmatch(name):
                        yield int(match[match.lastindex or 0]), directory, name


def _delete(path: Path) -> None:
    if path.is_symlink():  # a link: its target is not ours
        path.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        if path.exists():  # another process deletes at the same time
            shutil.rmtree(path)
    except OSError:
        _open_up(path)
        shutil.rmtree(path)


def _open_up(path: Path) -> None:
    """A job may have made its directories read-only."""
    with contextlib.suppress(OSError):
        path.chmod(0o700)
    for directory, names, _ in os.walk(path):
        for below in (Path(directory) / name for name in names):
            if not below.is_symlink():
                with contextlib.suppress(OSError):
                    below.chmod(0o700)
