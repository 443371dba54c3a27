"""`swell batch FILE` and `swell batch ls|status|attach|cancel|fetch`: many short commands, one job per line."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click

from swell.cli.batch_follow import Batch, Follower, found_batch
from swell.cli.batch_patterns import from_here
from swell.cli.batch_results import Results
from swell.cli.batch_run import Several, back_option, results_option, run, watched
from swell.cli.cancel import conclude
from swell.cli.common import client, connected, plural, print_json, table
from swell.cli.follow import ENDED
from swell.cli.ls import take
from swell.cli.tables import JOB_HEAD, job_row
from swell.cli.terminal import safe, say

LISTED_JOBS = 10_000
HEAD = ("BATCH", "FIRST JOB", "USER", "JOBS", "WAITING", "RUNNING", "FINISHED", "FAILED", "CANCELLED")


class _FileOrVerb(click.Group):
    """`swell batch FILE` is `swell batch run FILE`; a file that is called like a verb is written ./ls."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_FileOrVerb)
def batch() -> None:
    """Run each line of a file as a job and bring the results back: swell batch FILE [OPTIONS].

    `swell batch run --help` shows the options."""


batch.add_command(run)


@batch.command("ls")
@connected
def list_batches(home: Path | None, as_json: bool) -> None:
    """List batches, newest first: jobs that were submitted together."""
    jobs = [job for job in take(client(home), "all", LISTED_JOBS, {})[0] if job["batch"]]
    groups: dict[str, list[dict[str, Any]]] = {}
    for job in jobs:
        groups.setdefault(job["batch"], []).append(job)
    if as_json:
        print_json([{"batch": name, **_counts(found)} for name, found in groups.items()])
    elif groups:
        say(table(HEAD, [_row(name, found) for name, found in groups.items()]))
    else:
        say("no batches; `swell batch FILE` runs each line of a file as a job")


def _counts(jobs: list[dict[str, Any]]) -> dict[str, int]:
    states = Counter(job["state"] for job in jobs)
    ended = sum(states[state] for state in ENDED)
    finished, waiting = states["completed"], states["queued"]
    return {
        "jobs": len(jobs),
        "waiting": waiting,
        "running": len(jobs) - ended - waiting,
        "finished": finished,
        "failed": ended - finished - states["cancelled"],
        "cancelled": states["cancelled"],
    }


def _row(name: str, jobs: list[dict[str, Any]]) -> tuple[str, ...]:
    first = min(jobs, key=lambda job: int(job["id"]))
    return (name, first["name"], first["user"] or "-", *map(str, _counts(jobs).values()))


@batch.command()
@click.argument("name", metavar="BATCH")
@connected
def status(home: Path | None, as_json: bool, name: str) -> None:
    """Show the jobs of BATCH (its name, one of its jobs, or `last`)."""
    views = sorted(found_batch(client(home), name).views(), key=lambda view: int(view["id"]))
    if as_json:
        print_json(views)
        return
    say(table(JOB_HEAD, [job_row(view) for view in views]))
    counts = {what: count for what, count in _counts(views).items() if what != "jobs" and count}
    say(", ".join([plural(len(views), "job"), *(f"{count} {what}" for what, count in counts.items())]))


@batch.command(cls=Several)
@click.argument("name", metavar="BATCH")
@results_option
@back_option
@click.option("--verbose", is_flag=True, help="Also why jobs wait.")
@connected
def attach(home: Path | None, as_json: bool, name: str, results: Path, back: tuple[str, ...], verbose: bool) -> None:
    """Follow BATCH again and bring results back as jobs end. Ctrl-C stops its jobs, as with `swell batch FILE`.

    Results that are here already stay as they are."""
    there = Results(root=results, patterns=from_here(back))
    found = found_batch(client(home), name)
    sys.exit(watched(found, Follower(verbose=verbose), there, as_json=as_json, keep=True))


@batch.command()
@click.argument("name", metavar="BATCH")
@connected
def cancel(home: Path | None, as_json: bool, name: str) -> None:
    """Cancel the jobs of BATCH that have not ended."""
    conclude(found_batch(client(home), name).cancel(), "cancelled", as_json=as_json)


@batch.command(cls=Several)
@click.argument("name", metavar="BATCH")
@results_option
@back_option
@click.option("--overwrite", is_flag=True, help="Bring results again that are here already.")
@connected
def fetch(home: Path | None, as_json: bool, name: str, results: Path, back: tuple[str, ...], overwrite: bool) -> None:
    """Bring the results of those jobs of BATCH that have ended."""
    found = client(home)
    there, fetched, skipped = Results(root=results, patterns=from_here(back)), [], 0
    for view in _ended(found_batch(found, name)):
        if there.exist(view["name"]) and not overwrite:
            skipped += 1
            continue
        there.collect(found, view)
        fetched.append(view["name"])
    if as_json:
        print_json({"results": str(results), "fetched": fetched, "skipped": skipped})
        return
    left = f"; {skipped} were here already (--overwrite brings them again)" if skipped else ""
    say(safe(f"results of {plural(len(fetched), 'job')} brought into {results}{left}"))


def _ended(found: Batch) -> list[dict[str, Any]]:
    return [view for view in found.views() if view["state"] in ENDED]
