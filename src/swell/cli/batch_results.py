"""Where the results of a batch go: job_results/<job>/ for files, <job>.out and <job>.err beside it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swell.cli.far_files import bring, far_tree
from swell.cli.terminal import safe, say
from swell.client.errors import Refused
from swell.client.http import Client
from swell.jobfile.outputs import FetchError, copy, matching, written

STREAMS = (".out", ".err")


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A directory of results. `patterns`: which files come back; none: all that the job wrote."""

    root: Path
    patterns: Sequence[str] = ()

    def exist(self, name: str) -> bool:
        return any((self.root / f"{name}{suffix}").exists() for suffix in ("", *STREAMS))

    def collect(self, client: Client, job: dict[str, Any]) -> None:
        """Bring back what an ended job left, in place of what is there. One that never started left nothing."""
        if job["started_s"] is None:
            return
        place = client.get(f"/v1/jobs/{job['id']}/files")
        directory, submitted = Path(place["directory"]), Path(place["submitted"]) if place["submitted"] else None
        self.root.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.root / job["name"], ignore_errors=True)
        if client.address.local and not place["machine"] and (directory / f"{job['name']}.out").is_file():
            self._copy(job["name"], directory, submitted)
            return
        try:
            self._bring(client, job)
        except (Refused, FetchError) as refused:
            self._only_the_log(client, job, str(refused))

    def _copy(self, name: str, directory: Path, submitted: Path | None) -> None:
        """Files first: output that is there says that all the rest is."""
        streams = [f"{name}{suffix}" for suffix in STREAMS]
        found = matching(directory, self.patterns) if self.patterns else written(directory, submitted)
        files = [file for file in found if file not in streams]
        copy(directory, files, self.root / name, replace=True)
        copy(directory, [file for file in streams if (directory / file).is_file()], self.root, replace=True)

    def _bring(self, client: Client, job: dict[str, Any]) -> None:
        """From another machine, through the daemon. In the same order."""
        tree = far_tree(client, job["id"])
        for note in tree.notes:
            say(safe(f"note: {note}"), err=True)
        streams = {f"{job['name']}{suffix}" for suffix in STREAMS}
        files = [file for file in tree.chosen(self.patterns) if file.path not in streams]
        own = [file for file in tree.files if file.path in streams]
        bring(client, job["id"], files, self.root / job["name"], replace=True, shown=False)
        bring(client, job["id"], own, self.root, replace=True, shown=False)

    def _only_the_log(self, client: Client, job: dict[str, Any], why: str) -> None:
        """Its log, which has both streams, is kept apart from its files."""
        target = self.root / f"{job['name']}.out"
        part = target.with_name(f".{target.name}.part")
        with part.open("wb") as file:
            for data in client.raw(f"/v1/jobs/{job['id']}/logs", rank=0):
                file.write(data)
        part.replace(target)
        say(
            safe(f"WARNING: {job['name']}: {why}; {target} has its log. `swell batch fetch --overwrite` tries again"),
            err=True,
        )
