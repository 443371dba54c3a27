"""`swell attach JOB`: its log and its state, from now until it has ended."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from swell.cli import completion
from swell.cli.common import client, connected
from swell.cli.run import watch
from swell.cli.tables import holds, progress, state
from swell.cli.terminal import safe, say

TAIL_BYTES = 4000
"""Of what was printed before, about a screen."""


@click.command()
@click.argument("job", type=completion.JOB)
@connected
def attach(home: Path | None, as_json: bool, job: str) -> None:
    """Watch JOB as if `swell run` had been left open: what it prints and what becomes of it.

    Ctrl-C detaches; the job goes on. The exit code is 0 if it completed, else 1.
    """
    found = client(home)
    view = found.job(job)
    parts = (f"job {view['id']}  {view['name']}", state(view), holds(view), _epochs(progress(view)))
    say(safe("  ".join(part for part in parts if part) + "  (Ctrl-C detaches)"), err=True)
    sys.exit(watch(found, view["id"], as_json=as_json, tail=TAIL_BYTES))


def _epochs(text: str) -> str:
    return "" if text == "-" else f"progress {text}"
