"""`swell explain JOB`: why it waits, or has what it has."""

from __future__ import annotations

import time
from pathlib import Path
from urllib.parse import quote

import click

from swell.cli.common import client, connected, print_json, table

SHOWN = 10
AGAIN_S = 1.0


@click.command()
@click.argument("job")
@connected
def explain(home: Path | None, as_json: bool, job: str) -> None:
    """Say why JOB waits, or has what it has, with numbers."""
    path = f"/v1/jobs/{quote(job, safe='')}/explain"
    view = client(home).get(path)
    if view.get("missing") and not view.get("advice"):  # it is being worked out: once more
        time.sleep(AGAIN_S)
        view = client(home).get(path)
    if as_json:
        print_json(view)
        return
    first, *more = dict.fromkeys(filter(None, (view["summary"], *view["sentences"])))
    click.echo(f"job {view['job']}: {first}")
    for sentence in more:
        click.echo(f"  - {sentence}")
    if view.get("trouble"):
        click.echo(f"nothing is decided at present: {view['trouble']}")
    ahead = view.get("ahead", [])
    if ahead:
        rows = [
            (str(a["job"]), a["name"], a["user"] or "-", a["state"], str(a["gpus"]), str(a["priority"])) for a in ahead
        ]
        click.echo("ahead of it:")
        click.echo(table(("ID", "NAME", "USER", "STATE", "GPUS", "PRIORITY"), rows[:SHOWN]))
        if view["ahead_count"] > SHOWN:
            click.echo(f"… and {view['ahead_count'] - SHOWN} more")
    if view.get("starts"):
        click.echo(f"forecast: {view['starts']}")
    if view.get("advice"):
        click.echo(f"to start sooner: {view['advice']}")
    if view.get("missing"):
        click.echo(f"({view['missing']})")
