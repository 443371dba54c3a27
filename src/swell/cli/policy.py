"""`swell policy [NAME]`: show or change how GPUs are shared out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from swell.cli import completion
from swell.cli.common import client, connected, print_json
from swell.cli.terminal import say


@click.command()
@click.argument("name", shell_complete=completion.policies, required=False)
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--placer", default="", help="Which GPUs: change the placer too.")
@click.option("-o", "--option", "options", multiple=True, metavar="KEY=VALUE", help="The same as KEY=VALUE.")
@connected
def policy(
    home: Path | None, as_json: bool, name: str | None, settings: tuple[str, ...], placer: str, options: tuple[str, ...]
) -> None:
    """Show the policy, or change it to NAME from the next decision on, with options KEY=VALUE of it.

    Without NAME the options are of the policy that holds.
    """
    options = (*settings, *options)
    if name and "=" in name:
        options, name = (name, *options), None
    found = client(home)
    view = found.get("/v1/policy")
    if name or placer or options:
        body = {"name": name or view["name"], "placer": placer, "options": dict(_option(text) for text in options)}
        view = found.request_json("PUT", "/v1/policy", body)
    if as_json:
        print_json(view)
        return
    said = " ".join(f"{key}={value}" for key, value in view["options"].items())
    say(f"policy  {view['name']}  {said}".rstrip())
    say(f"placer  {view['placer']}")
    say(f"others  {', '.join(other for other in view['policies'] if other != view['name'])}")


def _option(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} has no value; write KEY=VALUE", param_hint="KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
