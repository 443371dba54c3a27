"""`swell ls`: jobs, one a line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from swell.cli.common import client, connected, plural, print_json, table
from swell.cli.tables import JOB_HEAD, job_row
from swell.cli.terminal import say
from swell.client.http import Client, user_name

SHOWN_ENDED = 5
PAGE = 500


@click.command()
@click.option("-a", "--all", "everything", is_flag=True, help="Also all that have ended.")
@click.option("--running", "group", flag_value="running", help="Only those that hold something.")
@click.option("--queued", "group", flag_value="queued", help="Only those that wait.")
@click.option("--ended", "group", flag_value="ended", help="Only those that have ended.")
@click.option("-n", "--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many a group.")
@click.option("--user", default="", help="Only this user's.")
@click.option("--mine", is_flag=True, help="Only yours.")
@click.option("--batch", default="", help="Only those submitted together under this name.")
@connected
def ls(
    home: Path | None, as_json: bool, everything: bool, group: str | None, limit: int, user: str, mine: bool, batch: str
) -> None:
    """List jobs: those that run, those that wait, and the last few that have ended."""
    query = {"user": user_name() if mine else user, "batch": batch}
    found = client(home)
    if everything:
        groups = {"all": 1 << 31}
    elif group:
        groups = {group: limit}
    else:
        groups = {"ended": SHOWN_ENDED, "running": limit, "queued": limit}
    jobs: list[dict[str, Any]] = []
    more = False
    for name, most in groups.items():
        part, left = take(found, name, most, query)
        jobs += part
        more = more or (left and name != "ended")
    jobs.sort(key=lambda job: job["id"])
    if as_json:
        print_json(jobs)
    else:
        _show(jobs, more)


def take(found: Client, group: str, most: int, query: dict[str, str]) -> tuple[list[dict[str, Any]], bool]:
    jobs: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None and len(jobs) < most:
        page, after = found.jobs(state=group, limit=min(PAGE, most - len(jobs)), after=after, **query)
        jobs += page
    return jobs, after is not None


def _show(jobs: list[dict[str, Any]], more: bool) -> None:
    if not jobs:
        say("no jobs; `swell run -- python train.py` starts one, `swell ls --all` shows those that have ended")
        return
    say(table(JOB_HEAD, [job_row(job) for job in jobs]))
    if more:
        say(f"({plural(len(jobs), 'job')} shown, there are more: -n 1000, or --all)")
