"""`swell priority JOB LEVEL`."""

from __future__ import annotations

import re
from pathlib import Path

import click

from swell.cli import completion
from swell.cli.acts import act_on
from swell.cli.common import connected
from swell.cli.missing import Word

MISSING = "Write low, normal, high, urgent or a whole number (higher goes first)."


class _Negative(click.Command):
    """-5 is a level, not an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        levels = [arg for arg in args if re.fullmatch(r"-\d+", arg)]
        if len(levels) == 1 and "--" not in args:
            args = [*(arg for arg in args if arg not in levels), "--", *levels]
        return super().parse_args(ctx, args)


@click.command(cls=_Negative)
@click.argument("job", type=completion.JOB)
@click.argument("level", type=Word(MISSING), shell_complete=completion.PRIORITIES)
@connected
def priority(home: Path | None, as_json: bool, job: str, level: str) -> None:
    """Give JOB the priority LEVEL: low, normal, high, urgent or a number."""
    act_on(home, [job], "priority", as_json=as_json, body={"priority": level})
