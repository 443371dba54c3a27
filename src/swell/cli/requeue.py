"""`swell requeue JOB…`."""

from __future__ import annotations

from pathlib import Path

import click

from swell.cli import completion
from swell.cli.acts import act_on
from swell.cli.common import connected


@click.command()
@click.argument("jobs", type=completion.JOB, nargs=-1, required=True)
@connected
def requeue(home: Path | None, as_json: bool, jobs: tuple[str, ...]) -> None:
    """Put JOBS back into the queue: ids, ranges (5-9), names, patterns ('train-*') or `last`.

    An ended job runs again, with the files it was submitted with and the checkpoints it wrote. A running one stops at
    its next checkpoint and goes on when its turn comes.
    """
    act_on(home, jobs, "requeue", as_json=as_json, groups=("all",))
