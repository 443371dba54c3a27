"""`swell audit`: who did what, when, from where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from swell.cli.common import client, connected, print_json, table
from swell.cli.numbers import Count
from swell.cli.terminal import say
from swell.cli.times import FORMS, Moment, clock


@click.command()
@click.option("--user", default="", help="Of this user only.")
@click.option("--since", type=Moment(), help=f"Since then only: {FORMS}.")
@click.option("--refused", is_flag=True, help="Only what was refused: wrong tokens, missing rights, too many requests.")
@click.option(
    "-n",
    "--last",
    type=Count(1, 10_000),
    default=50,
    show_default=True,
    help="How many entries to show, the last ones.",
)
@connected
def audit(home: Path | None, as_json: bool, user: str, since: float | None, refused: bool, last: int) -> None:
    """Show requests that changed something and requests that were refused, newest last. For admins.

    What became of them is in `swell events`. The daemon keeps the last 8 to 16 MiB of each kind.
    """
    found = client(home).get("/v1/audit", user=user, since_s=since or 0.0, refused=refused, limit=last)["entries"]
    found.reverse()
    if as_json:
        print_json(found)
    elif not found:
        say("nothing of that kind is in the audit log")
    else:
        say(table(("TIME", "USER", "FROM", "STATUS", "REQUEST", "ABOUT"), [_row(entry) for entry in found], {"TIME"}))


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    user = f"{entry['user'] or '-'} ({entry['way']})" if entry["way"] else "unknown"
    request = f"{entry['method']} {entry['path']}"
    return clock(entry["at_s"]), user, entry["peer"] or "-", str(entry["status"]), request, entry["what"] or "-"
