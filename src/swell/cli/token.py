"""`swell token new|ls|revoke`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from swell.cli.common import client, connected, print_json, table
from swell.cli.missing import Verbs
from swell.cli.numbers import Count
from swell.cli.terminal import say
from swell.cli.user import ROLES
from swell.jobfile.units import format_duration


@click.group(cls=Verbs)
def token() -> None:
    """Make, list or revoke tokens: what `swell login` asks for."""


@token.command()
@click.option("--user", "who", default="", help="The user it is for; admins only.  [default: yourself]")
@click.option("--role", type=ROLES, help="At most this role.  [default: the user's]")
@click.option(
    "--days",
    type=Count(0, 3660),
    default=90,
    show_default=True,
    help="Expires then, or with the token you use; 0: never.",
)
@click.option("--note", default="", help="What it is for, shown by `token ls`.")
@connected
def new(home: Path | None, as_json: bool, who: str, role: str | None, days: int, note: str) -> None:
    """Make a token. It is shown this once."""
    view = client(home).post("/v1/tokens", {"user": who, "role": role, "days": days, "note": note})
    if as_json:
        print_json(view)
        return
    say(view["token"])
    left_s = view["expires_s"] and view["expires_s"] - view["made_s"]
    ends = f"expires in {format_duration(left_s)}" if left_s else "does not expire"
    say(f"for {view['user']} as {view['role']}; {ends}; `swell token revoke {view['id']}` ends it", err=True)


@token.command()
@connected
def ls(home: Path | None, as_json: bool) -> None:
    """List your tokens; admins see everybody's."""
    tokens = client(home).get("/v1/tokens")["tokens"]
    if as_json:
        print_json(tokens)
    elif not tokens:
        say("there are no tokens; `swell token new --user NAME` makes one for a user whom `swell user add NAME` added")
    else:
        head = ("ID", "USER", "ROLE", "EXPIRES IN", "LAST USED", "FROM", "NOTE")
        say(table(head, [_row(one, time.time()) for one in tokens]))


@token.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID…")
@connected
def revoke(home: Path | None, as_json: bool, ids: tuple[str, ...]) -> None:
    """End tokens at once."""
    daemon = client(home)
    answers = [daemon.request("DELETE", f"/v1/tokens/{one}") for one in ids]
    if as_json:
        print_json(answers)
    else:
        say(f"revoked {', '.join(ids)}")


def _row(one: dict[str, Any], now_s: float) -> tuple[str, ...]:
    expires = "never" if one["expires_s"] is None else format_duration(max(0.0, one["expires_s"] - now_s))
    used = "-" if one["last_used_s"] is None else f"{format_duration(max(0.0, now_s - one['last_used_s']))} ago"
    return one["id"], one["user"], one["role"], expires, used, one["last_used_from"] or "-", one["note"] or "-"
