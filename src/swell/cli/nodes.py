"""`swell nodes`: machines and who has their GPUs."""

from __future__ import annotations

from pathlib import Path

import click

from swell.cli.common import client, connected, print_json, table
from swell.cli.tables import NODE_HEAD, node_row
from swell.cli.terminal import say


@click.command()
@connected
def nodes(home: Path | None, as_json: bool) -> None:
    """List machines: free GPUs, type, and the jobs that have some."""
    found = client(home).get("/v1/nodes")["nodes"]
    if as_json:
        print_json(found)
    elif not found:
        say("no machine yet; `swell node add NAME --gpus 8` adds one")
    else:
        say(table(NODE_HEAD, [node_row(node) for node in found]))
