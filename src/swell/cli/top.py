"""`swell top`: jobs and GPUs, live."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from swell.cli.common import client, connected, print_json
from swell.cli.tables import COLOURS, JOB_HEAD, job_row
from swell.cli.terminal import safe
from swell.client.http import Client

if TYPE_CHECKING:
    from rich.console import Group

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@click.command()
@click.option("--every", "every_s", type=click.FloatRange(0.2), default=1.0, show_default=True, help="Seconds.")
@click.option("--once", is_flag=True, help="Print one picture and return.")
@connected
def top(home: Path | None, as_json: bool, every_s: float, once: bool) -> None:
    """Watch jobs and GPUs live; Ctrl-C leaves."""
    from rich.console import Console
    from rich.live import Live

    found = client(home)
    if as_json:
        print_json(_look(found))
        return
    console = Console()
    if once or not console.is_terminal:
        console.print(_picture(_look(found), 100))
        return
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(_picture(_look(found), console.size.height), refresh=True)
                time.sleep(every_s)
    except KeyboardInterrupt:
        return


def _look(found: Client) -> dict[str, Any]:
    running, _ = found.jobs(state="running", limit=200)
    queued, _ = found.jobs(state="queued", limit=200)
    ended, _ = found.jobs(state="ended", limit=5)
    return {
        "health": found.get("/v1/health"),
        "nodes": found.get("/v1/nodes")["nodes"],
        "jobs": [*reversed(running), *reversed(queued), *reversed(ended)],
    }


def _picture(look: dict[str, Any], height: int) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    counts = " ".join(f"{count} {state}" for state, count in look["health"].get("jobs", {}).items() if count)
    parts: list[Any] = [Text(safe(f"swell {look['health'].get('policy', '')}   {counts}"), style="bold")]
    parts += [Text(safe(_gpu_line(node))) for node in look["nodes"][: max(1, height // 4)]]
    room = max(3, height - len(parts) - 4)
    rows = [job_row(job) for job in look["jobs"][:room]]
    table = Table(box=None, pad_edge=False, expand=True)
    for index, name in enumerate(JOB_HEAD):
        least = max((len(row[0]) for row in rows), default=2) if index == 0 else None
        table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=least, ratio=1 if name == "WHY" else None)
    for row in rows:
        table.add_row(*(Text(safe(cell)) for cell in row), style=COLOURS.get(row[3], ""))
    more = len(look["jobs"]) - len(rows)
    return Group(*parts, table, *([Text(f"+{more} more")] if more else []))


def _gpu_line(node: dict[str, Any]) -> str:
    """One character a GPU: the job's letter, `.` free, `x` not usable, `o` somebody else's."""
    marks = "".join(_mark(gpu) for gpu in node["gpus"])
    legend = sorted({job for gpu in node["gpus"] for job in gpu["jobs"]})
    named = "  ".join(f"{LETTERS[job % len(LETTERS)]}={job}" for job in legend)
    return f"{node['name']:<16} [{marks}] {node['gpus_free']}/{node['gpus_total']} free  {named}"


def _mark(gpu: dict[str, Any]) -> str:
    if gpu["jobs"]:
        return LETTERS[gpu["jobs"][0] % len(LETTERS)]
    if gpu["health"] != "ok":
        return "x"
    return "o" if gpu["others"] else "."
