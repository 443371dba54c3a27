"""TensorBoard's files of a job whose directory is on another machine, kept up to date in a directory here."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from swell.cli.far_files import FarFile, bring, far_tree
from swell.cli.terminal import safe, say
from swell.client.http import Client
from swell.core.errors import SwellError

NAME = ".tfevents."
"""In the names of all files that TensorBoard reads."""
EVERY_S = 5.0


@dataclass(slots=True, kw_only=True)
class EventFiles:
    """Of one job. `logdir`: only those below it, as a path from the job's directory."""

    job: int
    logdir: str
    target: Path
    brought: dict[str, FarFile] = field(default_factory=dict)
    tried_s: float = float("-inf")
    trouble: str = ""

    def refresh(self, client: Client) -> None:
        """Bring those that are new or have changed."""
        self.tried_s = time.monotonic()
        listed = [file for file in far_tree(client, self.job).files if self._is_shown(file.path)]
        changed = [file for file in listed if self.brought.get(file.path) != file]
        if changed:
            bring(client, self.job, changed, self.target, replace=True, shown=False)
        self.brought = {file.path: file for file in listed}

    def keep_up(self, client: Client) -> None:
        """Fetches new event files every few seconds. A file that cannot be fetched is reported once and tried again."""
        if time.monotonic() < self.tried_s + EVERY_S:
            return
        try:
            self.refresh(client)
            self.trouble = ""
        except (SwellError, OSError) as error:
            client.close()
            if str(error) != self.trouble:
                self.trouble = str(error)
                say(safe(f"WARNING: what job {self.job} writes is not up to date: {error}; tried again"), err=True)

    def _is_shown(self, path: str) -> bool:
        return NAME in PurePosixPath(path).name and PurePosixPath(path).is_relative_to(self.logdir)
