"""`swell resume`: let paused jobs go on."""

from __future__ import annotations

from pathlib import Path

import click

from swell.cli import completion
from swell.cli.acts import act_on
from swell.cli.common import connected


@click.command()
@click.argument("jobs", type=completion.JOB, nargs=-1, required=True)
@connected
def resume(home: Path | None, as_json: bool, jobs: tuple[str, ...]) -> None:
    """Let paused JOBS go on: they queue again and start from their last checkpoint.

    JOBS are ids, ranges (5-9), names, patterns ('train-*') or `last`.
    """
    act_on(home, jobs, "resume", as_json=as_json)
