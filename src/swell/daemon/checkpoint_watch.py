"""Checkpoints of scripts without the library: watches their checkpoint directories and reports each new one.

A checkpoint counts once files of the directory have changed and none of them grows between two looks, so that none is
reported half written. Its time is that of the look that found it: the report may come later, and a stop that was
requested in between still waits for the next one. The engine runs this beside its other tasks; it changes nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from swell.core.events import CheckpointSeen, Event
from swell.core.ids import RunId
from swell.core.state import JobRecord, JobState, State

EVERY_S = 1.0
REPORT_EVERY_S = 30.0
"""Minimum time between two reports of one script, except when a stop waits for its next checkpoint."""
MAX_FILES = 10_000
"""Maximum number of files that one look reads of a directory."""

Print = tuple[int, int, int]
"""(files, bytes, newest change in ns) of a directory: two looks with the same one saw the same files."""


@dataclass(slots=True)
class _Watched:
    latest: Print  # at first what an earlier attempt left
    changed_s: float | None = None  # when `latest` was found, while it may still grow
    whole_s: float | None = None  # when the newest whole checkpoint was found that was not reported yet
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
        """One look at every directory that counts."""
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

    async def ended(self, run: RunId) -> None:
        """Report its last whole checkpoint before the end of the run is recorded: what it lost goes by that."""
        watched = self._watched.pop(run, None)
        if watched is not None:
            await self._commit(_unreported(run, watched, self._now_s()))


def _compare(watched: _Watched, seen: Print, now_s: float) -> None:
    """Two looks, one after the other."""
    # By size, not by time: a script that rewrites a small file several times a second is never quiet.
    stable = seen[:2] == watched.latest[:2]
    if seen != watched.latest:
        watched.latest, watched.changed_s = seen, now_s
    if stable and watched.changed_s is not None:
        watched.whole_s, watched.changed_s = watched.changed_s, None


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
    """Summarises all files below this directory. Unreadable files count as missing; the next look is a second later."""
    files = size = newest_ns = 0
    for root, _, names in os.walk(directory):
        for name in names:
            if files >= MAX_FILES:
                return files, size, newest_ns
            try:
                found = os.stat(os.path.join(root, name))  # noqa: PTH116, PTH118  thousands, every second
            except OSError:
                continue
            files, size, newest_ns = files + 1, size + found.st_size, max(newest_ns, found.st_mtime_ns)
    return files, size, newest_ns
