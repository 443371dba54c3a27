"""`swell down`: stop the daemon; jobs go on running."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import click

from swell.cli.common import client, connected, plural, print_json
from swell.cli.terminal import say
from swell.client.errors import DaemonUnreachable
from swell.client.http import Client

STOP_S = 20.0
CANCEL_S = 30.0
"""Jobs that were cancelled are waited for so long; what still runs then is named."""


@click.command()
@click.option("--cancel", is_flag=True, help="Cancel all jobs first.")
@connected
def down(home: Path | None, as_json: bool, cancel: bool) -> None:
    """Stop the daemon of this machine. Jobs go on; the next `swell up` takes them over."""
    found = client(home)
    if not found.address.local or not found.address.pid:
        raise click.UsageError("this daemon runs on another machine; stop it there")
    cancelled = _cancel_all(found) if cancel else []
    running, _ = found.jobs(state="running", limit=1000)
    _stop(found.address.pid)
    if as_json:
        print_json({"stopped": found.address.url, "cancelled": cancelled, "running": [job["id"] for job in running]})
        return
    if cancelled:
        say(f"cancelled {plural(len(cancelled), 'job')}")
    say(f"stopped the daemon at {found.address.url}")
    if running:
        say(f"{plural(len(running), 'job')} still running; `swell up` takes over again")


def _cancel_all(found: Client) -> list[int]:
    """Give up all jobs, and wait for the ends of those that run: each has its grace."""
    cancelled: list[int] = found.post("/v1/jobs/cancel", {"all": True, "reason": "swell down --cancel"})["cancelled"]
    deadline = time.monotonic() + CANCEL_S
    while found.jobs(state="running", limit=1)[0] and time.monotonic() < deadline:
        time.sleep(0.1)
    return cancelled


def _stop(pid: int) -> None:
    """Only a process that is a Swell daemon: pids come round again."""
    if b"swell" not in _command_of(pid):
        raise DaemonUnreachable(f"process {pid} is not the daemon any more; `swell up` starts a new one")
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while b"swell" in _command_of(pid):
        if time.monotonic() > deadline:
            raise DaemonUnreachable(f"the daemon (process {pid}) did not end within {STOP_S:.0f} s; look at daemon.log")
        time.sleep(0.02)


def _command_of(pid: int) -> bytes:
    """Empty for a process that has ended, also for one that its parent has not noticed yet."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
