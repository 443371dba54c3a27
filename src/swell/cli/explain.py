"""`swell explain JOB`: why it waits, or has what it has."""

from __future__ import annotations

import time
from pathlib import Path

import click

from swell.cli import completion
from swell.cli.common import client, connected, print_json, table
from swell.cli.terminal import safe, say
from swell.client.http import job_path

SHOWN = 10
AGAIN_S = 0.3
TRIES = 6
"""How often the daemon is asked for advice before the answer is shown without it."""


@click.command()
@click.argument("job", type=completion.JOB)
@connected
def explain(home: Path | None, as_json: bool, job: str) -> None:
    """Say why JOB waits, or has what it has, with numbers."""
    path = job_path(job, "explain")
    view = client(home).get(path)
    for _ in range(TRIES - 1):
        if not view.get("missing") or view.get("advice"):
            break
        time.sleep(AGAIN_S)  # it is being worked out
        view = client(home).get(path)
    if as_json:
        print_json(view)
        return
    first, *more = dict.fromkeys(filter(None, (view["summary"], *view["sentences"])))
    say(safe(f"job {view['job']}: {first}"))
    for sentence in more:
        say(f"  - {safe(sentence)}")
    if view.get("trouble"):
        say(safe(f"nothing is decided at present: {view['trouble']}"))
    ahead = view.get("ahead", [])
    if ahead:
        rows = [
            (str(a["job"]), a["name"], a["user"] or "-", a["state"], str(a["gpus"]), str(a["priority"])) for a in ahead
        ]
        say("ahead of it:")
        say(table(("ID", "NAME", "USER", "STATE", "GPUS", "PRIORITY"), rows[:SHOWN]))
        if view["ahead_count"] > SHOWN:
            say(f"… and {view['ahead_count'] - SHOWN} more")
    if view.get("starts"):
        say(safe(f"forecast: {view['starts']}"))
    if view.get("advice"):
        say(safe(f"to start sooner: {view['advice']}"))
    if view.get("missing"):
        say(safe(f"({view['missing']})"))
