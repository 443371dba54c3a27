"""`swell explain JOB`: why it waits, or has what it has."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import click

from swell.cli.common import client, connected, print_json, table

SHOWN = 10


@click.command()
@click.argument("job")
@connected
def explain(home: Path | None, as_json: bool, job: str) -> None:
    """Say why JOB waits, or has what it has, with numbers."""
    view = client(home).get(f"/v1/jobs/{quote(job, safe='')}/explain")
    if as_json:
        print_json(view)
        return
    first, *more = dict.fromkeys(filter(None, (view["summary"], *view["sentences"])))
    click.echo(f"job {view['job']}: {first}")
    for sentence in more:
        click.echo(f"  - {sentence}")
    ahead = view.get("ahead", [])
    if ahead:
        rows = [
            (str(a["job"]), a["name"], a["user"] or "-", a["state"], str(a["gpus"]), str(a["priority"])) for a in ahead
        ]
        click.echo("ahead of it:")
        click.echo(table(("ID", "NAME", "USER", "STATE", "GPUS", "PRIORITY"), rows[:SHOWN]))
        if len(rows) > SHOWN:
            click.echo(f"… and {len(rows) - SHOWN} more")
    if view.get("starts"):
        click.echo(f"forecast: {view['starts']}")
    if view.get("advice"):
        click.echo(f"to start sooner: {view['advice']}")
