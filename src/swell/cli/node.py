"""`swell node add|ls|show|cordon|uncordon|drain|lost|remove`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from swell.cli.common import client, connected, print_json, table
from swell.cli.missing import Verbs
from swell.cli.node_add import add
from swell.cli.node_show import described
from swell.cli.nodes import nodes
from swell.cli.tables import NODE_HEAD, node_row
from swell.cli.terminal import say


@click.group(cls=Verbs)
def node() -> None:
    """Add, show, cordon, drain or remove a machine."""


node.add_command(add)
node.add_command(nodes, "ls")


@node.command(short_help="Show one machine: contact, GPUs, who uses them.")
@click.argument("name")
@connected
def show(home: Path | None, as_json: bool, name: str) -> None:
    """Show NAME: whether it answers, how it is reached, its GPUs and who uses them."""
    view = client(home).get(_path(name))
    if as_json:
        print_json(view)
    else:
        say(described(view))


@node.command()
@click.argument("name")
@click.option("--why", default="", help="Shown to people.")
@connected
def cordon(home: Path | None, as_json: bool, name: str, why: str) -> None:
    """Give NAME nothing new; what runs there goes on."""
    _change(home, as_json, name, "cordon", {"why": why})


@node.command()
@click.argument("name")
@connected
def uncordon(home: Path | None, as_json: bool, name: str) -> None:
    """Use NAME again, also after it was quarantined."""
    _change(home, as_json, name, "uncordon", {"why": ""})


@node.command(short_help="Move away what runs on a machine; give it nothing new.")
@click.argument("name")
@click.option("--why", default="", help="Shown to people.")
@connected
def drain(home: Path | None, as_json: bool, name: str, why: str) -> None:
    """Checkpoint what runs on NAME and move it away; give it nothing new."""
    _change(home, as_json, name, "drain", {"why": why})


@node.command(short_help="Report a machine as switched off.")
@click.argument("name")
@click.option("--is-off", is_flag=True, help="You know that the machine is switched off.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@connected
def lost(home: Path | None, as_json: bool, name: str, is_off: bool, yes: bool) -> None:
    """Report that NAME, which does not answer, is switched off, so that its jobs continue elsewhere now.

    Without this they do so by themselves once its lease is over. A machine that only lost its network still runs its
    jobs: reported as off, they would run twice."""
    if not is_off:
        raise click.UsageError("add --is-off if you know that the machine is switched off; if not, wait for its lease")
    meaning = f"Its jobs start again elsewhere at once. If {name} is still running, they run twice."
    _confirm(yes, f"{meaning}\nIs {name} switched off?", "--yes")
    _change(home, as_json, name, "lost", {"is_off": True})


@node.command(short_help="Take a machine out of the cluster.")
@click.argument("name")
@click.option("--keep-files", is_flag=True, help="Leave what Swell keeps on the machine where it is.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@connected
def remove(home: Path | None, as_json: bool, name: str, keep_files: bool, yes: bool) -> None:
    """Take NAME out of the cluster. Nothing of Swell is left on a machine over SSH: working copies and checkpoints of
    jobs are deleted there."""
    served = client(home)
    if served.get(_path(name))["ssh"] is not None and not keep_files:
        lose = f"What jobs wrote on {name} and nobody has fetched is deleted (`swell fetch JOB`, or --keep-files)."
        _confirm(yes, f"{lose}\nRemove {name}?", "--yes or --keep-files")
    answer = served.request("DELETE", f"{_path(name)}?keep_files={str(keep_files).lower()}")
    if as_json:
        print_json(answer)
    else:
        say(f"removed {name}" + (f"; note: {answer['left']}" if answer["left"] else ""))


def _confirm(yes: bool, question: str, options: str) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question.splitlines()[0]} Nobody is here to ask: add {options}")
    click.confirm(question, abort=True)


def _path(name: str) -> str:
    return f"/v1/nodes/{quote(name, safe='')}"


def _change(home: Path | None, as_json: bool, name: str, action: str, body: dict[str, Any]) -> None:
    view = client(home).post(f"{_path(name)}/{action}", body)
    if as_json:
        print_json(view)
    else:
        say(table(NODE_HEAD, [node_row(view)]))
