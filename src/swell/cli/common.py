"""What verbs share: finding the daemon, starting one if there is none, `--json`, plain tables."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Container, Sequence
from pathlib import Path
from typing import Any

import click

from swell.cli.terminal import safe, say
from swell.client.errors import DaemonUnreachable, Refused
from swell.client.find import find
from swell.client.http import Client
from swell.home import OUTPUT_NAME, default_home, kept_slots, make_directory, open_private

START_S = 30.0
TINY_BYTES = 1 << 20

home_option = click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the daemon keeps its things.  [default: $SWELL_HOME or ~/.swell]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def connected(command: Callable[..., Any]) -> Callable[..., Any]:
    """--home and --json, which every verb that talks to the daemon has."""
    return home_option(json_option(command))


def client(home: Path | None = None) -> Client:
    """A client of the daemon that is there. Raises DaemonUnreachable."""
    return Client(find(home))


def answering(home: Path | None) -> Client | None:
    """A client, if the daemon is there and answers."""
    try:
        found = client(home)
        found.get("/v1/health")
    except (DaemonUnreachable, Refused):
        return None
    return found


def client_or_start(home: Path | None, *, needs_gpus: bool = True) -> Client:
    """A client; starts a daemon of our own when none is configured."""
    if os.environ.get("SWELL_URL") and home is None:
        return client()
    place = (home or default_home()).expanduser()
    found = answering(home)
    if found is None:
        found = start_daemon(home, ())
        say(f"note: no daemon was running; one is now, at {found.address.url} (`swell down` stops it)", err=True)
        return _with_slots(found, place)
    return _with_slots(found, place) if needs_gpus and found.address.local else found


def declare_slots(client: Client, gpus: int | str) -> list[dict[str, Any]]:
    """Declare slots on the daemon's machine, or (`auto`) the GPUs that it finds; returns the nodes after that."""
    nodes: list[dict[str, Any]] = client.post("/v1/slots", {"gpus": None if gpus == "auto" else gpus})["nodes"]
    return nodes


def _with_slots(client: Client, home: Path) -> Client:
    """The first job on a machine without GPUs brings a slot per core, or none with a GPU could ever run."""
    nodes = client.get("/v1/nodes")["nodes"] if kept_slots(home) is None else []
    if slots_come(client, home, nodes):
        cores = nodes[0]["cpus"]
        declare_slots(client, cores)
        say(
            f"note: no GPU was found here; {plural(cores, 'slot')} stand{'s' if cores == 1 else ''} in for GPUs, one "
            "per core (`swell up --gpus N` changes that, `swell up --gpus auto` looks for GPUs again)",
            err=True,
        )
    return client


def slots_come(client: Client, home: Path, nodes: Sequence[dict[str, Any]]) -> bool:
    """Will the first job bring slots? Not where somebody declared a number, where there are other machines, or where
    jobs ran before: there a driver may have failed."""
    if kept_slots(home) is not None or len(nodes) != 1 or nodes[0]["gpus"] or nodes[0]["executor"] != "local":
        return False
    return not client.jobs(state="all", limit=1)[0]


def start_daemon(home: Path | None, options: Sequence[str]) -> Client:
    """A daemon in the background, independent of this terminal; returns when it answers."""
    place = (home or default_home()).expanduser().resolve()
    make_directory(place)
    said = place / OUTPUT_NAME
    with os.fdopen(open_private(said), "ab") as output:
        began = said.stat().st_size
        process = subprocess.Popen(
            [sys.executable, "-m", "swell", "serve", "--home", str(place), *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=place,
        )
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        found = answering(place)
        if found is not None:
            return found
        if process.poll() is not None and answering(place) is None:
            break
        time.sleep(0.03)
    if process.poll() is None:
        raise DaemonUnreachable(
            f"the daemon was started and has not answered within {START_S:g} s: this machine may be busy. `swell ls` "
            f"shows whether it answers now; what it wrote is in {said}"
        )
    raise DaemonUnreachable(_not_started(said, began))


def _not_started(said: Path, began: int) -> str:
    text = said.read_bytes()[began:].decode(errors="replace").strip()
    if not text and shutil.disk_usage(said.parent).free < TINY_BYTES:  # it could not even say so
        return (
            f"the daemon did not start: the disk that holds {said.parent} is full; free some space and start it again"
        )
    last = text.splitlines()[-1] if text else "it said nothing"
    return f"the daemon did not start: {last.removeprefix('swell: ')} (more in {said})"


def print_json(value: object) -> None:
    say(json.dumps(value, indent=2, sort_keys=False))  # plain ASCII: escapes are escaped


LEAST_WIDTH = 8
FIRST_WIDTH = 12


def table(head: Sequence[str], rows: Sequence[Sequence[str]], whole: Container[str] = (), first: str = "") -> str:
    """Aligned columns. On a terminal the widest are cut until lines fit; the first, which names the row, never is, nor
    are those in `whole`: half a time says nothing. The column `first` is cut to FIRST_WIDTH before all others."""
    cells = [list(head), *([safe(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    if (room := terminal_columns()) is not None:
        least = [
            width if name in whole else max(LEAST_WIDTH, len(name)) for name, width in zip(head, widths, strict=True)
        ]
        room -= 2 * (len(head) - 1)
        if first in head and (over := sum(widths) - room) > 0:
            at = head.index(first)
            widths[at] = max(min(widths[at], FIRST_WIDTH), widths[at] - over)
        _narrow(widths, least, room)
    return "\n".join(_line(row, widths) for row in cells)


def _narrow(widths: list[int], least: Sequence[int], room: int) -> None:
    """Cut the widest column, then the next, until all fit or none may be cut any more."""
    while sum(widths) > room:
        cut = [i for i in range(1, len(widths)) if widths[i] > least[i]]
        if not cut:
            return
        widest = max(cut, key=lambda i: widths[i])
        widths[widest] -= 1


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(_cut(cell, width).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def terminal_columns() -> int | None:
    """How wide the terminal is; None: nobody looks, all may be printed."""
    return columns() if sys.stdout.isatty() else None


def columns() -> int:
    """COLUMNS if it is exported, else what the terminal says."""
    return shutil.get_terminal_size((120, 24)).columns


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
