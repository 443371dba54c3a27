"""`swell ls`: jobs, one a line."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from swell.cli.common import client, connected, plural, print_json, table, terminal_columns
from swell.cli.numbers import Count
from swell.cli.tables import COLOURS, JOB_HEAD, job_head, job_row, state
from swell.cli.terminal import say
from swell.client.http import Client

SHOWN_ENDED = 5
PAGE = 500
ALL = 1 << 31
WATCH_S = 2.0
Job = dict[str, Any]


STATES = ("queued", "paused", "starting", "running", "stopping", "completed", "failed", "cancelled", "lost")
SORTS: Mapping[str, Callable[[Job], Any]] = {
    "id": lambda job: job["id"],
    "name": lambda job: (job["name"], job["id"]),
    "state": lambda job: (job["state"], job["id"]),
    "user": lambda job: (job["user"], job["id"]),
    "gpus": lambda job: (-job["gpus"]["held"], job["id"]),
    "priority": lambda job: (-job["priority"], job["id"]),
    "waited": lambda job: (-job["waited_s"], job["id"]),
    "ran": lambda job: (-job["ran_s"], job["id"]),
}


@click.command()
@click.option("-a", "--all", "everything", is_flag=True, help="Also all that have ended.")
@click.option("--running", "group", flag_value="running", help="Only those that hold something.")
@click.option("--queued", "group", flag_value="queued", help="Only those that wait.")
@click.option("--ended", "group", flag_value="ended", help="Only those that have ended.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only in this; may be repeated.")
@click.option("--name", default="", help="Only of this name; patterns such as 'train-*' too.")
@click.option("-n", "--limit", type=Count(1), default=100, show_default=True, help="Most jobs to show per group.")
@click.option("--user", default="", help="Only this user's.")
@click.option("--mine", is_flag=True, help="Only yours.")
@click.option("--batch", default="", help="Only those submitted together under this name.")
@click.option("--sort", type=click.Choice(tuple(SORTS)), default="id", show_default=True, help="Order of the lines.")
@click.option("-w", "--wide", is_flag=True, help="All columns, however narrow the terminal is.")
@click.option("--watch", is_flag=True, help="Again every two seconds, until Ctrl-C.")
@connected
def ls(home: Path | None, as_json: bool, watch: bool, wide: bool, **said: Any) -> None:
    """List jobs: those that run, those that wait, and the last few that have ended.

    ETA is when a running job will have ended, or a waiting one will start. A wide terminal (or -w) also has the times
    waited, run and in all; a narrow one leaves out USER, if it is the same for all, and WHERE before WHY is cut short.
    """
    wanted = Wanted(**said)
    while True:
        jobs, more = wanted.jobs(client(home))
        if watch and not as_json:
            click.clear()
        if as_json:
            print_json(jobs)
        else:
            _show(jobs, more, wide, wanted)
        if not watch:
            return
        time.sleep(WATCH_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which jobs somebody wants to see, and in which order."""

    everything: bool
    group: str | None
    states: tuple[str, ...]
    name: str
    limit: int
    user: str
    mine: bool
    batch: str
    sort: str

    def jobs(self, found: Client) -> tuple[list[Job], bool]:
        """The jobs, and whether there are more."""
        query = {"user": found.me() if self.mine else self.user, "batch": self.batch}
        jobs: dict[int, Job] = {}  # one that moves on between two questions is there twice: as it was seen last
        more = False
        for group, most in self._groups().items():
            lately = {"order": "ended"} if group == "ended" and most <= PAGE else {}
            part, left = take(found, group, most, {**query, **lately})
            matching = [job for job in part if self._matches(job)]
            jobs |= {job["id"]: job for job in (matching[: self.limit] if self._filters else matching)}
            more = more or (left and group != "ended")
        return sorted(jobs.values(), key=SORTS[self.sort]), more

    @property
    def narrowed(self) -> bool:
        return bool(self._filters or self.user or self.mine or self.batch or self.group)

    @property
    def _filters(self) -> bool:
        return bool(self.states or self.name)

    def _groups(self) -> dict[str, int]:
        if self.everything or (self._filters and not self.group):
            return {"all": ALL}
        if self.group:
            return {self.group: ALL if self._filters else self.limit}
        return {"queued": self.limit, "running": self.limit, "ended": min(SHOWN_ENDED, self.limit)}

    def _matches(self, job: Job) -> bool:
        state = "paused" if job["paused"] and job["state"] == "queued" else job["state"]
        named = not self.name or fnmatch.fnmatchcase(job["name"], self.name)
        return named and (not self.states or state in self.states)


def take(found: Client, group: str, most: int, query: Mapping[str, object]) -> tuple[list[dict[str, Any]], bool]:
    jobs: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None and len(jobs) < most:
        page, after = found.jobs(state=group, limit=min(PAGE, most - len(jobs)), after=after, **query)
        jobs += page
    return jobs, after is not None


def _show(jobs: list[Job], more: bool, wide: bool, wanted: Wanted) -> None:
    if not jobs and wanted.narrowed:
        say("no job is like that; `swell ls --all` shows those there are")
        return
    if not jobs:
        say("no jobs; `swell run -- python train.py` starts one, `swell ls --all` shows those that have ended")
        return
    names = JOB_HEAD if wide else job_head(terminal_columns(), jobs)
    first = "" if "RAN" in names else "NAME"  # with all columns there is room for both
    head, *lines = table(names, [job_row(job, names) for job in jobs], whole=("ETA", "STATE"), first=first).split("\n")
    say(head)
    for job, line in zip(jobs, lines, strict=True):
        say(line, colour=COLOURS.get(state(job), ""))
    if more:
        say(f"({plural(len(jobs), 'job')} shown, there are more: -n 1000, or --all)")
