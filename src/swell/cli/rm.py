"""`swell rm`: take ended jobs out of the record, and have their disk space back."""

from __future__ import annotations

import fnmatch
import sys
from pathlib import Path
from typing import Any

import click

from swell.cli import completion
from swell.cli.cancel import conclude, spread
from swell.cli.common import client, connected, plural, print_json
from swell.cli.follow import ENDED
from swell.cli.ls import take
from swell.cli.terminal import say
from swell.client.errors import Refused
from swell.client.http import Client
from swell.jobfile.units import format_size, parse_duration_s, parse_size_mib

SHOWN = 10
MEASURED = 200
"""The most jobs whose disk use is measured before asking; the question then says that there are more."""
KINDS = {"working_copy": "working copies", "checkpoints": "checkpoints", "logs": "logs"}
Job = dict[str, Any]


class Duration(click.ParamType[float]):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return parse_duration_s(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Size(click.ParamType[int]):
    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return parse_size_mib(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.argument("jobs", type=completion.JOB, nargs=-1)
@click.option("--ended", is_flag=True, help="All that have ended.")
@click.option("--mine", is_flag=True, help="Of these, only yours.")
@click.option("--older-than", type=Duration(), metavar="TIME", help="Of these, only what ended longer ago: 30d, 12h.")
@click.option("--larger-than", type=Size(), metavar="SIZE", help="Of these, only what takes more of the disk: 10GiB.")
@click.option("--dry-run", is_flag=True, help="Show what would go, and remove nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@connected
def rm(
    home: Path | None,
    as_json: bool,
    jobs: tuple[str, ...],
    ended: bool,
    mine: bool,
    older_than: float | None,
    larger_than: int | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove ended JOBS, with all they left on disk: ids, ranges (5-9), names, patterns ('train-*') or `last`.

    Deletes their record, logs, working copies and checkpoints; there is no way back, so it asks first (in scripts:
    --yes). `swell fetch` brings a job's files to safety, with --checkpoints what it saved. Directories of your own that
    a job file names (`workdir`, `checkpoint_dir`) are not touched. Without this everything is kept.
    """
    if not (jobs or ended):
        raise click.UsageError("which jobs? Name them, or use --ended for all that have ended")
    found = client(home)
    wanted, problems = _wanted(found, [ref for text in jobs for ref in spread(text)], ended=ended)
    if mine:
        me = found.me()
        wanted = {job: view for job, view in wanted.items() if view["user"] == me}
    if older_than is not None:
        wanted = _ended_before(wanted, found.get("/v1/health")["now_s"] - older_than)
    if larger_than is not None:
        wanted = {job: view for job, view in wanted.items() if sum(_sizes(found, [view]).values()) > larger_than << 20}
    if dry_run:
        _preview(found, list(wanted.values()), problems, as_json=as_json)
        sys.exit(2 if problems else 0)
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


def _ended_before(jobs: dict[int, Job], before_s: float) -> dict[int, Job]:
    return {job: view for job, view in jobs.items() if view["ended_s"] < before_s}


def _is_pattern(ref: int | str) -> bool:
    return isinstance(ref, str) and any(mark in ref for mark in "*?[")


def _preview(found: Client, jobs: list[Job], problems: list[dict[str, Any]], *, as_json: bool) -> None:
    """One line per job; nothing is removed."""
    sizes = {job["id"]: _sizes(found, [job]) for job in jobs}
    if as_json:
        would = [{"job": job, "bytes": found} for job, found in sizes.items()]
        print_json({"would_remove": would, "problems": problems})
        return
    for job in jobs:
        say(f"would remove {job['id']} ({job['name']}): {_words(sizes[job['id']])}")
    total = {kind: sum(size[kind] for size in sizes.values()) for kind in KINDS}
    say(f"would remove {plural(len(jobs), 'job')} and delete {_words(total)}; nothing was removed")
    for problem in problems[:SHOWN]:
        say(f"would not remove: {problem['detail']}", err=True)


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
    return _words(_sizes(found, jobs[:MEASURED])) + (" and more" if len(jobs) > MEASURED else "")


def _sizes(found: Client, jobs: list[Job]) -> dict[str, int]:
    """Bytes on the daemon's machine, by kind."""
    views = [found.get(f"/v1/jobs/{job['id']}/files") for job in jobs]
    return {kind: sum(view[kind]["bytes"] for view in views) for kind in KINDS}


def _words(sizes: dict[str, int]) -> str:
    parts = ", ".join(f"{format_size(size)} of {KINDS[kind]}" for kind, size in sizes.items() if size)
    return parts or "no files"
