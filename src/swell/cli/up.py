"""`swell up`: the daemon in the background."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from swell.cli.common import answering, connected, plural, print_json, start_daemon
from swell.cli.serve import daemon_options
from swell.cli.terminal import say
from swell.home import TOKEN_NAME, default_home


@click.command()
@daemon_options
@connected
def up(home: Path | None, as_json: bool, **options: Any) -> None:
    """Start the daemon in the background, unless it runs already."""
    running = answering(home)
    arguments = [part for key, value in options.items() if value is not None for part in _argument(key, value)]
    client = running or start_daemon(home, arguments)
    nodes = client.get("/v1/nodes")["nodes"]
    if as_json:
        print_json({"url": client.address.url, "started": running is None, "nodes": nodes})
        return
    say(f"swell {'runs already' if running else 'is up'} at {client.address.url}")
    if client.address.warning:
        say(f"warning: {client.address.warning}", err=True)
    if running and arguments:
        say("note: its options are those it was started with; `swell down` first to change them")
    _tell(home, nodes)


def _argument(key: str, value: object) -> tuple[str, ...]:
    name = f"--{key.replace('_', '-')}"
    return (name,) if value is True else (name, str(value))


def _tell(home: Path | None, nodes: list[dict[str, Any]]) -> None:
    say(f"token in {(home or default_home()).expanduser() / TOKEN_NAME}")
    for node in nodes:
        say(f"{node['name']}: {_gpus(node)}, {plural(node['cpus'], 'CPU')}")
    say("next:  swell run --gpus 1-4 -- python train.py  |  swell ls  |  swell top")


def _gpus(node: dict[str, Any]) -> str:
    """Declared slots have no memory that anybody measured; they are called what they are."""
    gpus = node["gpus"]
    if not gpus:
        return "no GPU found (`swell up --gpus N` declares slots to try Swell without one)"
    if not any(gpu["memory_mib"] for gpu in gpus):
        return f"{plural(len(gpus), 'slot')}, no NVIDIA driver"
    types = ", ".join(dict.fromkeys(gpu["type"] for gpu in gpus))
    return f"{len(gpus)} x {types}"
