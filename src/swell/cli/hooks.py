"""`swell hooks`: where notices go, and whether they arrive."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import click

from swell.cli.common import client, connected, print_json, table
from swell.cli.terminal import say


@click.command()
@click.option("--test", "name", default="", metavar="NAME", help="Send a notice to this hook now.")
@connected
def hooks(home: Path | None, as_json: bool, name: str) -> None:
    """Show where notices of ended, failed, preempted and starving jobs and of machines go (`hooks` in config.yaml)."""
    daemon = client(home)
    if name:
        answer = daemon.post(f"/v1/hooks/{quote(name, safe='')}/test")
        if as_json:
            print_json(answer)
        else:
            say(f"{name} did not take it: {answer['trouble']}" if answer["trouble"] else f"{name} took it")
        click.get_current_context().exit(1 if answer["trouble"] else 0)
    found = daemon.get("/v1/hooks")["hooks"]
    if as_json:
        print_json(found)
    elif not found:
        say("there are no hooks; config.yaml: `hooks: {team: {url: 'https://…', style: slack}}`, then restart")
    else:
        rows = [(h["name"], h["to"], " ".join(h["kinds"]), str(h["sent"]), h["trouble"] or "-") for h in found]
        say(table(("NAME", "TO", "KINDS", "SENT", "TROUBLE"), rows))
