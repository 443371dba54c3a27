"""`swell quota`: what you and your team have, and may have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from swell.cli.common import client, connected, print_json, table
from swell.cli.terminal import say


@click.command()
@click.option("--user", default="", help="Of somebody else; for operators.")
@click.option("--all", "everybody", is_flag=True, help="Of every user and team; for operators.")
@connected
def quota(home: Path | None, as_json: bool, user: str, everybody: bool) -> None:
    """Show your limits and your team's quota, with what is in use. `options` in config.yaml sets them."""
    if everybody and user:
        raise click.UsageError("--all shows every user; leave --user out")
    found = client(home).get("/v1/quotas") if everybody else client(home).get("/v1/quota", user=user)
    if as_json:
        print_json(found)
        return
    users = found["users"] if everybody else [found["user"]]
    teams = found["teams"] if everybody else [team for team in (found["team"],) if team]
    say(table(("USER", "WAITING", "RUNNING", "GPUS", "REQUESTS"), [_user_row(one) for one in users]))
    if teams:
        say("")
        say(table(("TEAM", "GPUS", "QUOTA", "GPU HOURS", "WAITING", "RUNNING"), [_team_row(team) for team in teams]))

    if not everybody:
        say(_one_request(found["requests"]))


def _one_request(most: Mapping[str, Any]) -> str:
    return (
        f"\nOne request: {most['max_bytes'] >> 20} MiB, {most['max_jobs']:,} jobs, pages of {most['max_page']:,}; "
        f"files {most['max_files_mib']:,} MiB. At once: {most['max_at_once']} requests and streams. Wrong tokens: "
        f"{most['max_wrong_tokens']}, then one per second."
    )


def _user_row(user: Mapping[str, Any]) -> tuple[str, ...]:
    use, limits = user["use"], user["limits"]
    per_s = f"{limits['requests_per_s']:g} per s" if limits["requests_per_s"] else "any number"
    waiting, running = _of(use["queued"], limits["queued"]), _of(use["running"], limits["running"])
    return user["name"] or "-", waiting, running, str(use["gpus"]), per_s


def _of(used: int, most: int) -> str:
    return f"{used} of {most}" if most else f"{used}"


def _team_row(team: Mapping[str, Any]) -> tuple[str, ...]:
    use, entitled = team["use"], team["quota"]
    more = "" if entitled is None else ", may borrow" if entitled["borrow"] else ", no more"
    quota = "none" if entitled is None else f"{entitled['gpus']}{more}"
    return team["name"], str(use["gpus"]), quota, _hours(team["month"]), str(use["queued"]), str(use["running"])


def _hours(month: Mapping[str, Any]) -> str:
    of = "" if month["budget"] is None else f" of {month['budget']:g}"
    return f"{month['gpu_hours']:.1f}{of} this month"
