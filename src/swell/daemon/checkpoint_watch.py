"""Checkpoints of scripts without the library: watches their checkpoint directories and reports each new one.

A checkpoint counts once files of the directory have changed and then stayed unchanged for `SETTLE_S`: it may consist of
several files, and a run that is stopped between two of them has lost it. Logs and files that will be renamed do not
belong to it. Its time is that of the look that found the last change. The report may come later, so a stop requested in
between still waits for the next checkpoint. The engine runs this as a task; it only reads the directories.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from swell.core.events import CheckpointSeen, Event
from swell.core.ids import RunId
from swell.core.state import JobRecord, JobState, State
from swell.shim.checkpoint_files import SETTLE_S

EVERY_S = 1.0
NEVER_QUIET_S = 60.0
"""A script that never paused for `SETTLE_S` in this time, or that rewrites a file before such a pause, saves more often
than that: its files count when they are unchanged from one look to the next."""
REPORT_EVERY_S = 30.0
"""Minimum time between two reports of one script, except when a stop waits for its next checkpoint."""
MAX_FILES = 10_000
"""Maximum number of files that one look reads of a directory."""

_TO_BE_RENAMED = re.compile(
    r"(?i)\..+|.+\.(tmp|temp|part|partial|incomplete|new|lock)|(tmp|temp)[-_.].+|.+[-_.](tmp|temp)(\.\w+)?|tmp[a-z0-9_]{8}"
)
_LOGS = re.compile(r"(?i).+\.(log|csv|tsv|jsonl|out|err|wandb)|events\.out\.tfevents\..+|wandb|mlruns")
"""Names of files, and of directories, that trackers write all the time beside the checkpoints."""

SMALL = 1 << 20
"""A smaller file (in bytes) is written at once: if it changes and keeps its size, it was rewritten."""

File = tuple[int, int, int]
"""(inode, bytes, time of its last change in ns)."""
Print = dict[str, File]
"""The files of a directory, by path. Equal prints: nothing has changed between two looks."""


@dataclass(slots=True)
class _Watched:
    latest: Print  # at first what an earlier attempt left
    found_s: float = 0.0  # when `latest` was found
    pending: bool = False  # it may still be written
    unsettled_s: float = 0.0  # since when it changes without a pause of `SETTLE_S`
    restless: bool = False  # it saves more often than its files could settle
    written: set[str] = field(default_factory=set)  # files that changed since `unsettled_s`
    whole_s: float | None = None  # when the newest complete checkpoint was found; None once it is reported
    reported_s: float = -REPORT_EVERY_S


class CheckpointWatch:
    def __init__(
        self,
        state: Callable[[], State],
        directory_of: Callable[[JobRecord], Path],
        commit: Callable[[Sequence[Event]], Awaitable[None]],
        now_s: Callable[[], float],
    ) -> None:
        self._state, self._directory_of, self._commit, self._now_s = state, directory_of, commit, now_s
        self._watched: dict[RunId, _Watched] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(EVERY_S)

    async def look(self) -> None:
        """Look once at the directory of every job that saves without the library."""
        records = [record for job in self._state().active if _saves_by_itself(record := self._state().jobs[job])]
        current = {record.run.id for record in records if record.run is not None}
        self._watched = {run: watched for run, watched in self._watched.items() if run in current}
        for record in records:
            seen = await asyncio.to_thread(self._fingerprint, record)
            await self._commit(self._news(record, seen))

    def _fingerprint(self, record: JobRecord) -> Print:
        return fingerprint(self._directory_of(record))

    def _news(self, record: JobRecord, seen: Print) -> list[Event]:
        assert record.run is not None  # `_saves_by_itself`
        run, now_s = record.run.id, self._now_s()
        watched = self._watched.get(run)
        if watched is None:
            self._watched[run] = _Watched(seen)
            return []
        _compare(watched, seen, now_s)
        if record.state is JobState.STOPPING or now_s >= watched.reported_s + REPORT_EVERY_S:
            return _unreported(run, watched, now_s)
        return []

    async def ended(self, run: RunId, *, whole: bool) -> None:
        """Report the last complete checkpoint before the end of the run is recorded, because the lost work is counted
        from it. `whole`: the script ended with exit code 0, so its last files are complete too."""
        watched, record = self._watched.pop(run, None), self._state().jobs.get(run.job)
        if watched is None:
            return
        if whole and record is not None and record.run is not None and record.run.id == run:
            seen = await asyncio.to_thread(self._fingerprint, record)
            if seen != watched.latest:
                watched.whole_s = self._now_s()
            elif watched.pending:
                watched.whole_s = watched.found_s
        await self._commit(_unreported(run, watched, self._now_s()))


def _compare(watched: _Watched, seen: Print, now_s: float) -> None:
    """Update `watched` by the next look."""
    # By size, not by time: the times of a small file that is rewritten several times a second differ at every look.
    rests = _sizes(seen) == _sizes(watched.latest)
    if seen != watched.latest:
        if not watched.pending:
            watched.unsettled_s = now_s
            watched.restless = watched.restless and now_s - watched.found_s <= 2.0 * SETTLE_S
            watched.written = set()
        changed = {path for path, file in seen.items() if watched.latest.get(path) != file}
        watched.restless |= any(_anew(watched.latest.get(path), seen[path]) for path in changed & watched.written)
        watched.written |= changed
        watched.latest, watched.found_s, watched.pending = seen, now_s, True
    if not watched.pending:
        return
    watched.restless |= now_s - watched.unsettled_s > NEVER_QUIET_S
    if now_s - watched.found_s >= SETTLE_S or (rests and watched.restless):
        watched.whole_s, watched.pending = watched.found_s, False


def _sizes(seen: Print) -> dict[str, int]:
    return {path: file[1] for path, file in seen.items()}


def _anew(before: File | None, after: File) -> bool:
    """Whether the file was rewritten from its beginning: then the save before was complete."""
    if before is None:
        return False
    return after[0] != before[0] or after[1] < before[1] or after[1] == before[1] < SMALL


def _unreported(run: RunId, watched: _Watched, now_s: float) -> list[Event]:
    at_s, watched.whole_s = watched.whole_s, None
    if at_s is None:
        return []
    watched.reported_s = now_s
    return [CheckpointSeen(run=run, at_s=at_s)]


def _saves_by_itself(record: JobRecord) -> bool:
    running = record.state in (JobState.RUNNING, JobState.STOPPING) and record.run is not None
    return running and bool(record.spec.checkpoint_dir) and not record.uses_library


def fingerprint(directory: Path) -> Print:
    """The files below this directory that may be checkpoints. Unreadable files count as missing until the next
    look."""
    seen: Print = {}
    for root, folders, names in os.walk(directory):
        folders[:] = _of_checkpoints(folders)
        for name in _of_checkpoints(names):
            if len(seen) >= MAX_FILES:
                return seen
            path = os.path.join(root, name)  # noqa: PTH118  thousands, every second
            try:
                found = os.stat(path)  # noqa: PTH116
            except OSError:
                continue
            seen[path] = (found.st_ino, found.st_size, found.st_mtime_ns)
    return seen


def _of_checkpoints(names: Sequence[str]) -> list[str]:
    return [name for name in names if not _TO_BE_RENAMED.fullmatch(name) and not _LOGS.fullmatch(name)]
