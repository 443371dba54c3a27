"""`swell pause`: stop at the next checkpoint, and hold."""

from __future__ import annotations

from pathlib import Path

import click

from swell.cli import completion
from swell.cli.acts import act_on
from swell.cli.common import connected


@click.command()
@click.argument("jobs", type=completion.JOB, nargs=-1, required=True)
@connected
def pause(home: Path | None, as_json: bool, jobs: tuple[str, ...]) -> None:
    """Stop JOBS at their next checkpoint and hold them until `swell resume`.

    JOBS are ids, ranges (5-9), names, patterns ('train-*') or `last`.
    """
    act_on(home, jobs, "pause", as_json=as_json)
