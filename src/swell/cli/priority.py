"""`swell priority JOB LEVEL`."""

from __future__ import annotations

from pathlib import Path

import click

from swell.cli import completion
from swell.cli.acts import act_on
from swell.cli.common import connected
from swell.cli.missing import Word

MISSING = "Write low, normal, high, urgent or a whole number (higher goes first)."


@click.command()
@click.argument("job", type=completion.JOB)
@click.argument("level", type=Word(MISSING), shell_complete=completion.PRIORITIES)
@connected
def priority(home: Path | None, as_json: bool, job: str, level: str) -> None:
    """Give JOB the priority LEVEL: low, normal, high, urgent or a number."""
    act_on(home, [job], "priority", as_json=as_json, body={"priority": level})
