"""`swell priority JOB LEVEL`."""

from __future__ import annotations

from pathlib import Path

import click

from swell.cli import completion
from swell.cli.acts import act_on
from swell.cli.common import connected


@click.command()
@click.argument("job", type=completion.JOB)
@click.argument("level")
@connected
def priority(home: Path | None, as_json: bool, job: str, level: str) -> None:
    """Give JOB the priority LEVEL: low, normal, high, urgent or a number."""
    act_on(home, [job], "priority", as_json=as_json, body={"priority": level})
