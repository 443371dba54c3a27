"""`swell node add|cordon|uncordon|drain|remove`."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from swell.cli.common import client, connected, print_json, table
from swell.cli.tables import NODE_HEAD, node_row
from swell.cli.terminal import say


@click.group()
def node() -> None:
    """Add, cordon, drain or remove a machine."""


@node.command()
@click.argument("name")
@click.option("--gpus", type=click.IntRange(0), default=0, show_default=True, help="How many GPUs.")
@click.option("--gpu-type", default="gpu", show_default=True, help="Their type, such as A100.")
@click.option("--gpu-memory", default="0", help="Memory of each, such as 40GiB.")
@click.option("--cpus", type=click.IntRange(1), default=1, show_default=True, help="CPU cores.")
@click.option("--memory", default="1GiB", show_default=True, help="Memory of the machine.")
@click.option("--address", default="127.0.0.1", show_default=True, help="Where the other workers reach it.")
@click.option("--rack", default="", help="Rack or switch, for placement.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label; may be repeated.")
@connected
def add(home: Path | None, as_json: bool, labels: tuple[str, ...], **said: Any) -> None:
    """Declare a further machine NAME. Its processes run on the daemon's own machine: slots to try things with."""
    pairs = {key: value for key, _, value in (label.partition("=") for label in labels)}
    _tell(client(home).post("/v1/nodes", {**said, "labels": pairs}), as_json)


@node.command()
@click.argument("name")
@click.option("--why", default="", help="Shown to people.")
@connected
def cordon(home: Path | None, as_json: bool, name: str, why: str) -> None:
    """Give NAME nothing new; what runs there goes on."""
    _change(home, as_json, name, "cordon", why)


@node.command()
@click.argument("name")
@connected
def uncordon(home: Path | None, as_json: bool, name: str) -> None:
    """Use NAME again."""
    _change(home, as_json, name, "uncordon", "")


@node.command()
@click.argument("name")
@click.option("--why", default="", help="Shown to people.")
@connected
def drain(home: Path | None, as_json: bool, name: str, why: str) -> None:
    """Checkpoint what runs on NAME and move it away; give it nothing new."""
    _change(home, as_json, name, "drain", why)


@node.command()
@click.argument("name")
@connected
def remove(home: Path | None, as_json: bool, name: str) -> None:
    """Take NAME out of the cluster."""
    answer = client(home).request("DELETE", f"/v1/nodes/{quote(name, safe='')}")
    if as_json:
        print_json(answer)
    else:
        say(f"removed {name}")


def _change(home: Path | None, as_json: bool, name: str, action: str, why: str) -> None:
    _tell(client(home).post(f"/v1/nodes/{quote(name, safe='')}/{action}", {"why": why}), as_json)


def _tell(view: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(view)
    else:
        say(table(NODE_HEAD, [node_row(view)]))
