"""`swell node add`: a machine over SSH, with each check shown as it is made; or slots on the daemon's machine."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from swell.cli.common import client, columns, connected, print_json, table
from swell.cli.machine_target import machine
from swell.cli.numbers import Count
from swell.cli.tables import NODE_HEAD, node_row
from swell.cli.terminal import safe, say
from swell.client.http import Client, Message
from swell.core.errors import SwellError

COLOURS = {"note": "yellow", "failed": "red"}
NAME_WIDTH, VERDICT_WIDTH = 10, 8
INDENT = " " * (NAME_WIDTH + VERDICT_WIDTH)
SLOTS_ONLY = {"gpu_type": "gpu", "gpu_memory": "0", "cpus": 1, "memory": "1GiB", "address": "127.0.0.1"}
"""Options of slots, with their defaults: a machine over SSH is measured."""
CUT_SHORT = (
    "the daemon broke off before the checks were over; `swell node ls` shows whether the machine was added. "
    "If it was not, add it again"
)
SSH_ONLY = ("key", "name", "setup", "lease", "python", "root", "realm")


@click.command(short_help="Add a machine over SSH, or declare slots here.")
@click.argument("target")
@click.option("--key", default="", help="SSH: private key, on the daemon's machine.  [default: as ssh chooses]")
@click.option("--name", default="", help="SSH: what to call it.  [default: the host's name]")
@click.option("--setup", multiple=True, metavar="LINE", help="SSH: shell line before each job's command; repeatable.")
@click.option("--lease", default="", help="SSH: jobs end so long after they lost the daemon.  [default: 10m]")
@click.option("--python", default="", help="SSH: its Python, 3.8 or newer.  [default: python3]")
@click.option("--root", default="", help="SSH: directory on a local disk of it.  [default: ~/.swell]")
@click.option("--realm", default="", help="SSH: machines of one realm reach each other; a job never spans two.")
@click.option("--gpus", type=Count(0), help="How many slots; over SSH in place of the GPUs it has.")
@click.option("--gpu-type", default=SLOTS_ONLY["gpu_type"], show_default=True, help="Slots: their type, such as A100.")
@click.option("--gpu-memory", default=SLOTS_ONLY["gpu_memory"], help="Slots: memory of each, such as 40GiB.")
@click.option("--cpus", type=Count(1), default=1, show_default=True, help="Slots: CPU cores.")
@click.option("--memory", default=SLOTS_ONLY["memory"], show_default=True, help="Slots: memory of the machine.")
@click.option(
    "--address", default=SLOTS_ONLY["address"], show_default=True, help="Slots: where other workers reach it."
)
@click.option("--rack", default="", help="Rack or switch, for placement.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label; may be repeated.")
@connected
def add(home: Path | None, as_json: bool, target: str, labels: tuple[str, ...], **said: Any) -> None:
    """Add the machine TARGET: user@host[:port], an alias of ~/.ssh/config, or a machine file (username, ip, port,
    ssh_key_path). The daemon logs in and checks it first; nothing is installed there, and no root is needed.

    A plain TARGET with --gpus declares slots on the daemon's own machine instead, to try things with."""
    said["labels"] = pairs(labels)
    if said["gpus"] is not None and "@" not in target:
        _slots(client(home), as_json, target, said)
    else:
        _over_ssh(client(home), as_json, target, said)


def pairs(labels: tuple[str, ...]) -> dict[str, str]:
    for label in labels:
        if "=" not in label.strip("="):
            raise click.UsageError(f"--label {label}: write KEY=VALUE")
    return {key: value for key, _, value in (label.partition("=") for label in labels)}


def _slots(client: Client, as_json: bool, name: str, said: Mapping[str, Any]) -> None:
    for option in SSH_ONLY:
        if said[option]:
            raise click.UsageError(f"--{option} is for machines over SSH; leave out --gpus, or write user@host")
    view = client.post("/v1/nodes", {"name": name, **{k: v for k, v in said.items() if k not in SSH_ONLY}})
    _tell(view, as_json)


def _over_ssh(client: Client, as_json: bool, target: str, said: Mapping[str, Any]) -> None:
    for option, default in SLOTS_ONLY.items():
        if said[option] != default:
            raise click.UsageError(f"--{option.replace('_', '-')} is for slots; a machine over SSH is measured")
    given = {
        option: said[option]
        for option in ("name", "lease", "python", "root", "realm", "rack", "labels")
        if said[option]
    }
    key = {"key_file": str(Path(said["key"]).expanduser().absolute())} if said["key"] else {}
    setup = {"setup": list(said["setup"])} if said["setup"] else {}
    slots = {"gpus": said["gpus"]} if said["gpus"] is not None else {}
    messages = client.post_stream("/v1/machines", {**machine(target), **key, **setup, **slots, **given})
    end = _json(messages) if as_json else _shown(messages)
    if not end["added"]:
        raise SystemExit(1)


def add_machine(client: Client, body: Mapping[str, Any]) -> bool:
    """The same for a verb that needs the machine: each check is shown; was it added?"""
    return bool(_shown(client.post_stream("/v1/machines", body))["added"])


def _json(messages: Iterator[Message]) -> Mapping[str, Any]:
    """One document once all is over."""
    found = list(messages)
    if not found or found[-1].event != "end":
        raise SwellError(CUT_SHORT)
    end = found[-1].data
    checks = [message.data for message in found if message.event == "check"]
    node = next((message.data for message in found if message.event == "node"), None)
    print_json({**end, "checks": checks, "node": node})
    return end


def _shown(messages: Iterator[Message]) -> Mapping[str, Any]:
    for message in messages:
        if message.event == "check":
            _check(message.data)
        elif message.event == "node":
            say(f"\n{table(NODE_HEAD, [node_row(message.data)])}")
        elif message.event == "end":
            if message.data["why"]:
                say(f"swell: {safe(message.data['why'])}", err=True)
            return message.data
    raise SwellError(CUT_SHORT)


def _check(check: Mapping[str, Any]) -> None:
    verdict = str(check["verdict"])
    head = verdict.ljust(VERDICT_WIDTH) + check["name"].ljust(NAME_WIDTH)
    fix = f"\n{INDENT}" + _wrapped(f"fix: {check['fix']}") if check["fix"] else ""
    say(head + _wrapped(check["words"]) + fix, colour=COLOURS.get(verdict, ""))


def _wrapped(text: str) -> str:
    """On a terminal, lines stay behind the names of the checks; no command or key is broken in two."""
    if not sys.stdout.isatty():
        return safe(text)
    width = max(20, columns() - len(INDENT))
    return f"\n{INDENT}".join(textwrap.wrap(safe(text), width, break_long_words=False, break_on_hyphens=False))


def _tell(view: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(view)
    else:
        say(table(NODE_HEAD, [node_row(view)]))
