"""The highest job id that any database of this home has given.

A pending job has no files that would show its id. Without this file a second database could give the same id again, and
when the first database returns, its job would find the files of the other.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from pathlib import Path

from swell.core.events import Event, JobSubmitted
from swell.core.ids import JOB_ID, JobId

log = logging.getLogger(__name__)

EVERY_S = 0.2
"""Minimum time between two writes; the file of a killed daemon may be this far behind."""


class JobIdWatermark:
    def __init__(self, path: Path | None) -> None:
        """Without a path nothing is kept over a restart."""
        self._path = path
        self._reached: JobId = 0
        self._written: JobId = 0
        self._news = asyncio.Event()

    def read(self) -> JobId:
        """The id in the file; 0 if there is none or it is invalid."""
        try:
            text = self._path.read_text(encoding="ascii") if self._path is not None else ""
        except (OSError, ValueError):
            return 0
        return int(text) if re.fullmatch(JOB_ID, text.strip()) else 0

    def foreign(self, last_job: JobId, kept: Sequence[JobId]) -> JobId:
        """The highest id that another database has given here; at most `last_job` if there is none. That database was
        deleted or replaced by a backup. A new job with such an id would resume from the other job's checkpoint.
        `last_job`: the highest id of this database. `kept`: jobs that have files here."""
        with_files = [job for job in kept if job > last_job]
        through = max(*with_files, self.read(), 0)
        if through > last_job:
            log.warning(
                "another database has given job ids up to %d here (of %d of these jobs there are files, which are left "
                "alone); new jobs begin with %d",
                *(through, len(with_files), through + 1),
            )
        return through

    def happened(self, events: Sequence[Event]) -> None:
        """Notes the ids of submitted jobs. Called with durable events."""
        for event in events:
            if isinstance(event, JobSubmitted):
                self.reached(event.job)

    def reached(self, job: JobId) -> None:
        if job > self._reached:
            self._reached = job
            self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            await asyncio.to_thread(self.write)
            await asyncio.sleep(EVERY_S)

    def write(self) -> None:
        job = self._reached
        if self._path is None or job == self._written:
            return
        fresh = self._path.with_name(f".{self._path.name}.new")
        try:
            fresh.write_text(f"{job}\n", encoding="ascii")
            fresh.replace(self._path)
        except OSError as error:  # the database knows its own ids; the next one learns them later, or from their files
            log.warning("%s could not be written, and is at the next submission: %s", self._path, error)
        else:
            self._written = job
