"""`swell top`: jobs and GPUs, live, with keys."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from swell.cli.common import client, connected, print_json
from swell.cli.numbers import Amount
from swell.cli.top_keys import View, press
from swell.cli.top_picture import job_picture, log_picture, picture, shown_jobs
from swell.client.http import Client

TAIL_BYTES = 16_000
ESCAPE_S = 0.05
"""Bytes of one key come together; Esc comes alone."""


@click.command()
@click.option("--every", "every_s", type=Amount(0.2), default=1.0, show_default=True, help="Seconds.")
@click.option("--once", is_flag=True, help="Print one picture and return.")
@connected
def top(home: Path | None, as_json: bool, every_s: float, once: bool) -> None:
    """Watch jobs and GPUs live.

    Keys: q leaves, s sorts by something else, / filters by name, user or state, up and down choose a job, Enter shows
    it, l shows its log, Esc goes back.
    """
    from rich.console import Console

    found = client(home)
    if as_json:
        print_json(look(found))
        return
    console = Console()
    if once or not (console.is_terminal and sys.stdin.isatty()):
        console.print(picture(look(found), None, 100))
        return
    _watch(found, console, every_s)


def look(found: Client) -> dict[str, Any]:
    running, _ = found.jobs(state="running", limit=200)
    queued, _ = found.jobs(state="queued", limit=200)
    ended, _ = found.jobs(state="ended", limit=5)
    return {
        "health": found.get("/v1/health"),
        "nodes": found.get("/v1/nodes")["nodes"],
        "jobs": [*reversed(running), *reversed(queued), *reversed(ended)],
    }


def _watch(found: Client, console: Any, every_s: float) -> None:
    from rich.live import Live

    view = View()
    with _keys_at_once(), Live(console=console, screen=True, auto_refresh=False) as live:
        seen = look(found)
        due = time.monotonic() + every_s
        while not view.left:
            jobs = shown_jobs(seen["jobs"], view)
            chosen = jobs[min(view.chosen, len(jobs) - 1)] if jobs else None
            live.update(_drawn(found, view, seen, chosen, console.size.height), refresh=True)
            for key in _pressed(due - time.monotonic()):
                view = press(view, key, len(jobs))
            if time.monotonic() >= due:
                seen, due = look(found), time.monotonic() + every_s


def _drawn(found: Client, view: View, seen: dict[str, Any], chosen: dict[str, Any] | None, height: int) -> Any:
    if view.page == "list" or chosen is None:
        return picture(seen, replace(view, page="list"), height)
    if view.page == "job":
        return job_picture(found.job(chosen["id"]), height)
    return log_picture(chosen, _tail(found, chosen["id"]), height)


def _tail(found: Client, job: int) -> str:
    """About a screen of what it printed last."""
    kept = b""
    for data in found.raw(f"/v1/jobs/{job}/logs"):
        kept = (kept + data)[-TAIL_BYTES:]
    return kept.decode(errors="replace")


@contextlib.contextmanager
def _keys_at_once() -> Iterator[None]:
    """Keys arrive without Enter and are not shown; Ctrl-C still ends the program. As before afterwards."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _pressed(within_s: float) -> list[str]:
    """Keys that were pressed, waiting for the first one so long."""
    if not select.select([sys.stdin], [], [], max(0.0, within_s))[0]:
        return []
    text = os.read(sys.stdin.fileno(), 64).decode(errors="replace")
    if text == "\x1b" and select.select([sys.stdin], [], [], ESCAPE_S)[0]:
        text += os.read(sys.stdin.fileno(), 8).decode(errors="replace")
    return [text] if text.startswith("\x1b") else list(text)
