"""`swell rm`: take ended jobs out of the record, and have their disk space back."""

from __future__ import annotations

import fnmatch
import sys
from pathlib import Path
from typing import Any

import click

from swell.cli import completion
from swell.cli.cancel import conclude, spread
from swell.cli.common import client, connected, plural
from swell.cli.follow import ENDED
from swell.cli.ls import take
from swell.cli.terminal import say
from swell.client.errors import Refused
from swell.client.http import Client
from swell.jobfile.units import format_size

SHOWN = 10
MEASURED = 200
"""Jobs of which the disk use is looked at before asking; of more it is said that they are more."""
KINDS = {"working_copy": "working copies", "checkpoints": "checkpoints", "logs": "logs"}
Job = dict[str, Any]


@click.command()
@click.argument("jobs", shell_complete=completion.jobs, nargs=-1)
@click.option("--ended", is_flag=True, help="All that have ended.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@connected
def rm(home: Path | None, as_json: bool, jobs: tuple[str, ...], ended: bool, yes: bool) -> None:
    """Remove ended JOBS, with all they left on disk: ids, ranges (5-9), names, patterns ('train-*') or `last`.

    Deletes their record, logs, working copies and checkpoints; there is no way back, so it asks first (in scripts:
    --yes). `swell fetch` brings a job's files to safety. Directories of your own that a job file names (`workdir`,
    `checkpoint_dir`) are not touched. Without this everything is kept.
    """
    if not (jobs or ended):
        raise click.UsageError("which jobs? Name them, or use --ended for all that have ended")
    found = client(home)
    wanted, problems = _wanted(found, [ref for text in jobs for ref in spread(text)], ended=ended)
    if wanted and not yes:
        _ask(found, list(wanted.values()))
    removed: list[int] = []
    for job in wanted:
        try:
            found.remove(job)
            removed.append(job)
        except Refused as refused:
            problems.append({"job": job, "detail": str(refused)})
    conclude({"removed": removed, "problems": problems}, "removed", as_json=as_json)


def _wanted(found: Client, refs: list[int | str], *, ended: bool) -> tuple[dict[int, Job], list[dict[str, Any]]]:
    """Ended jobs by id, and what is wrong with the others."""
    wanted: dict[int, Job] = {}
    problems: list[dict[str, Any]] = []
    every: list[Job] = []
    if ended or any(_is_pattern(ref) for ref in refs):
        every, _ = take(found, "ended", 1 << 31, {})
    if ended:
        wanted.update((job["id"], job) for job in every)
    for ref in refs:
        matching = [job for job in every if fnmatch.fnmatchcase(job["name"], str(ref))] if _is_pattern(ref) else None
        try:
            named = [found.job(ref)] if matching is None else matching
        except Refused as refused:
            problems.append({"job": ref, "detail": str(refused)})
            continue
        if not named:
            problems.append({"job": ref, "detail": f"no job that has ended is called {ref}"})
        for job in named:
            if job["state"] in ENDED:
                wanted[job["id"]] = job
            else:
                detail = f"job {job['id']} has not ended; `swell cancel {job['id']}` first"
                problems.append({"job": ref, "detail": detail})
    return wanted, problems


def _is_pattern(ref: int | str) -> bool:
    return isinstance(ref, str) and any(mark in ref for mark in "*?[")


def _ask(found: Client, jobs: list[Job]) -> None:
    """Leaves unless somebody says yes."""
    shown = ", ".join(f"{job['id']} ({job['name']})" for job in jobs[:SHOWN]) + (", …" if len(jobs) > SHOWN else "")
    say(f"this removes {plural(len(jobs), 'job')}: {shown}", err=True)
    say(f"and deletes {_amount(found, jobs)}; there is no way back", err=True)
    if not sys.stdin.isatty():
        raise click.UsageError("nothing was removed: nobody is here to ask; --yes removes without asking")
    if not click.confirm("remove them?" if len(jobs) > 1 else "remove it?", err=True):
        say("nothing was removed", err=True)
        sys.exit(1)


def _amount(found: Client, jobs: list[Job]) -> str:
    views = [found.get(f"/v1/jobs/{job['id']}/files") for job in jobs[:MEASURED]]
    sizes = {words: sum(view[kind]["bytes"] for view in views) for kind, words in KINDS.items()}
    parts = ", ".join(f"{format_size(size)} of {words}" for words, size in sizes.items() if size)
    return (parts or "no files") + (" and more" if len(jobs) > MEASURED else "")
