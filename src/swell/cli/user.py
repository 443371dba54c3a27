"""`swell user add|ls|rm`."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import click

from swell.cli.common import client, connected, print_json, table
from swell.cli.missing import Verbs
from swell.cli.terminal import say

ROLES = click.Choice(["viewer", "submitter", "operator", "admin"])


@click.group(cls=Verbs)
def user() -> None:
    """Add, list or remove people who share this daemon.

    A viewer sees the queue and the machines, a submitter also runs jobs, an operator acts on everybody's jobs, machines
    and the policy, an admin also adds users. A daemon without users belongs to whoever started it.
    """


@user.command()
@click.argument("name")
@click.option("--role", type=ROLES, help="What they may do.  [default: submitter, or as before]")
@click.option("--team", help="Teammates read each other's jobs; quotas are by team.")
@connected
def add(home: Path | None, as_json: bool, name: str, role: str | None, team: str | None) -> None:
    """Add NAME, or change their role or team."""
    view = client(home).request_json("PUT", f"/v1/users/{quote(name, safe='')}", {"role": role, "team": team})
    if as_json:
        print_json(view)
        return
    say(f"{view['name']} is a {view['role']}{' in team ' + view['team'] if view['team'] else ''}")
    say(f"next:  swell token new --user {name}  makes a token; by a Unix socket of this machine they need none")


@user.command()
@connected
def ls(home: Path | None, as_json: bool) -> None:
    """List users."""
    users = client(home).get("/v1/users")["users"]
    if as_json:
        print_json(users)
    elif not users:
        say("there are no users: this daemon belongs to whoever started it; `swell user add NAME` adds one")
    else:
        rows = [(u["name"], u["role"], u["team"] or "-", str(u["active_jobs"])) for u in users]
        say(table(("NAME", "ROLE", "TEAM", "ACTIVE JOBS"), rows))


@user.command()
@click.argument("name")
@connected
def rm(home: Path | None, as_json: bool, name: str) -> None:
    """Remove NAME: their tokens stop working at once."""
    answer = client(home).request("DELETE", f"/v1/users/{quote(name, safe='')}")
    if as_json:
        print_json(answer)
    else:
        say(f"removed {name} and their tokens")
