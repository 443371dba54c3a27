"""`swell events`: what happened, and with -f what happens."""

from __future__ import annotations

import json
import time
from collections import deque
from pathlib import Path
from typing import Any

import click

from swell.cli import completion
from swell.cli.common import client, connected
from swell.cli.numbers import Count
from swell.cli.terminal import safe, say
from swell.client.http import Client

LAST = 30
_LEFT_OUT = frozenset({"seq", "type", "at_s", "job", "run", "spec", "allocation", "node", "memory", "key"})


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens.")
@click.option(
    "-n", "--last", type=Count(0), help=f"How many past events to begin with.  [default: {LAST}; of a job all]"
)
@click.option("--after", type=Count(0), help="Begin behind this number instead.")
@click.option("--job", "wanted", type=completion.JOB, metavar="JOB", help="Of this job only.")
@connected
def events(
    home: Path | None, as_json: bool, follow: bool, last: int | None, after: int | None, wanted: str | None
) -> None:
    """Show events, oldest first; with --json one object a line."""
    found = client(home)
    job = 0 if wanted is None else int(wanted) if wanted.isdecimal() else int(found.job(wanted)["id"])
    if after is None and last is not None and (job or not last):
        after = _behind(found, job, last)
    query: dict[str, Any] = {"follow": follow, "job": job}
    if after is not None:
        query["after"] = after
    elif not job:
        query["last"] = last or LAST
    stream = found.stream("/v1/events", until="never" if follow else "", **query)
    for number, message in enumerate(stream):
        if job and after is None and number == 0 and message.data["type"] != "JobSubmitted":
            say(f"earlier events of job {job} are no longer kept; see: swell show {job}", err=True)
        say(json.dumps(message.data) if as_json else safe(line(message.data)))


def _behind(found: Client, job: int, last: int) -> int:
    """The number of the event behind which the last ones of a job begin; without any, of the newest of all. The daemon
    counts the last over all jobs."""
    if not last:
        return int(found.get("/v1/health")["seq"])
    kept = deque((int(message.id) for message in found.stream("/v1/events", until="", follow=False, job=job)), last)
    return kept[0] - 1 if kept else 0


def line(view: dict[str, Any]) -> str:
    """time, number, what about, what happened, and the short fields."""
    at = time.strftime("%H:%M:%S", time.localtime(view["at_s"]))
    about = f"run {view['run']}" if "run" in view else f"job {view['job']}" if "job" in view else _node(view)
    detail = " ".join(f"{key}={_brief(value)}" for key, value in view.items() if key not in _LEFT_OUT and _short(value))
    name = view["spec"]["name"] + " " if "spec" in view else ""
    return f"{at}  {view['seq']:>6}  {about:<10}  {_words(view['type'])}  {name}{detail}".rstrip()


def _node(view: dict[str, Any]) -> str:
    node = view.get("node", "")
    return str(node["name"] if isinstance(node, dict) else node) or "swell"


def _short(value: object) -> bool:
    return value not in (None, "", 0, 0.0) and not isinstance(value, dict | list)


def _brief(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e6 else f"{value:.0f}"
    return str(value)


def _words(name: str) -> str:
    """RunStopRequested -> run stop requested"""
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()
