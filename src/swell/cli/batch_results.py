"""Where the results of a batch go: job_results/<job>/ for files, <job>.out and <job>.err beside it."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from swell.cli.far_files import bring, far_tree
from swell.cli.terminal import safe, say
from swell.client.errors import Refused
from swell.client.http import Client
from swell.jobfile.outputs import FetchError, copy, matching, written

STREAMS = (".out", ".err")
PART = ".part"
FILES = "files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A directory of results. `patterns`: which files come back; none: all that the job wrote."""

    root: Path
    patterns: Sequence[str] = ()

    def exist(self, name: str) -> bool:
        return any((self.root / f"{name}{suffix}").exists() for suffix in ("", *STREAMS))

    def check_place(self) -> None:
        """Raises what is wrong with it before any job runs, and makes nothing."""
        there = next(path for path in (self.root.absolute(), *self.root.absolute().parents) if path.exists())
        if not there.is_dir():
            raise click.BadParameter(f"{there} is not a directory, so no results can go there", param_hint="--results")
        if not os.access(there, os.W_OK | os.X_OK):
            raise click.BadParameter(f"nothing can be written in {there}; name another", param_hint="--results")

    def collect(self, client: Client, job: dict[str, Any]) -> None:
        """Bring back what an ended job left, in place of what is there. One that never started left nothing.

        All of it goes into a hidden directory first: half of it, after a crash, does not count as results, and is
        continued the next time."""
        if job["started_s"] is None:
            return
        place = client.get(f"/v1/jobs/{job['id']}/files")
        directory, submitted = Path(place["directory"]), Path(place["submitted"]) if place["submitted"] else None
        part = self.root / f".{job['name']}.{job['id']}{PART}"
        (part / FILES).mkdir(parents=True, exist_ok=True)
        why = "the job removed the file of its output"
        try:
            if client.address.local and not place["machine"] and directory.is_dir():
                self._copy(job["name"], directory, submitted, part)
            else:
                self._bring(client, job, part)
        except (Refused, FetchError) as refused:
            shutil.rmtree(part / FILES)
            why = f"{refused} (`swell batch fetch --overwrite` tries again)"
        if not (part / f"{job['name']}.out").exists():
            self._log_instead(client, job, why, part)
        self._settle(job["name"], part)

    def _copy(self, name: str, directory: Path, submitted: Path | None, part: Path) -> None:
        streams = [f"{name}{suffix}" for suffix in STREAMS]
        found = matching(directory, self.patterns) if self.patterns else written(directory, submitted)
        copy(directory, [file for file in found if file not in streams], part / FILES, replace=True)
        copy(directory, [file for file in streams if (directory / file).is_file()], part, replace=True)

    def _bring(self, client: Client, job: dict[str, Any], part: Path) -> None:
        """From another machine, through the daemon."""
        tree = far_tree(client, job["id"])
        for note in tree.notes:
            say(safe(f"note: {note}"), err=True)
        streams = {f"{job['name']}{suffix}" for suffix in STREAMS}
        files = [file for file in tree.chosen(self.patterns) if file.path not in streams]
        own = [file for file in tree.files if file.path in streams]
        bring(client, job["id"], files, part / FILES, replace=True, shown=False)
        bring(client, job["id"], own, part, replace=True, shown=False)

    def _log_instead(self, client: Client, job: dict[str, Any], why: str, part: Path) -> None:
        """Its log has both streams."""
        with (part / f"{job['name']}.out").open("wb") as file:
            for data in client.raw(f"/v1/jobs/{job['id']}/logs", rank=0):
                file.write(data)
        say(safe(f"WARNING: {job['name']}: {why}; {self.root / job['name']}.out has its log"), err=True)

    def _settle(self, name: str, part: Path) -> None:
        """All of it is here: to where it belongs."""
        own = [self.root / f"{name}{suffix}" for suffix in STREAMS]
        shutil.rmtree(self.root / name, ignore_errors=True)
        for stream in own:
            stream.unlink(missing_ok=True)
        if (part / FILES).is_dir():
            (part / FILES).replace(self.root / name)
        for stream in own:
            if (part / stream.name).is_file():
                (part / stream.name).replace(stream)
        for old in self.root.glob(f".{glob.escape(name)}.*{PART}"):
            shutil.rmtree(old, ignore_errors=True)
