"""`swell update JOB FIELD=VALUE…`: change what a job asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from swell.cli import completion
from swell.cli.acts import act_on
from swell.cli.common import connected, plural
from swell.cli.missing import FieldsAreNoOptions, Word

FIELDS = ("gpus", "time_limit", "priority")
NEXT = "submit the job again for anything else"
MISSING = "What is to change? swell update 7 gpus=2 (or time_limit=2h, priority=high)"


@click.command(cls=FieldsAreNoOptions)
@click.argument("job", type=completion.JOB)
@click.argument("changes", nargs=-1, required=True, type=Word(MISSING), metavar="FIELD=VALUE...")
@connected
def update(home: Path | None, as_json: bool, job: str, changes: tuple[str, ...]) -> None:
    """Change what JOB asks for, as in its file: gpus=1-4, time_limit=2h, priority=high.

    Works while it has not ended. A running job is resized if it can be; else a change that its run cannot follow is
    refused.
    """
    wanted = dict(_change(text) for text in changes)
    act_on(home, [job], "update", as_json=as_json, body=wanted, told=lambda view: _told(view, wanted))


def _told(view: dict[str, Any], wanted: dict[str, Any]) -> str:
    """What it asks for now, and when a running one gets that."""
    now = "  ".join(f"{name} {value}" for name, value in wanted.items())
    gpus = view["gpus"]
    if not view["where"] or gpus["share"] or gpus["min"] <= gpus["held"] <= gpus["max"]:
        return f"now {now}"
    return f"now {now}; it keeps {plural(gpus['held'], 'GPU')} until its next checkpoint"


def _change(text: str) -> tuple[str, Any]:
    from swell.core.spelling import nearest
    from swell.jobfile.read import read_value

    name, equals, value = text.partition("=")
    name = name.replace("-", "_")
    if not equals or not value:
        raise click.BadParameter(
            f"{text!r} changes nothing; write FIELD=VALUE, such as gpus=2", param_hint="FIELD=VALUE"
        )
    if name not in FIELDS:
        may = ", ".join(FIELDS)
        meant = nearest(name, FIELDS)
        instead = f"; did you mean {meant}?" if meant else ""
        hint = f"{name!r} cannot be changed after submit ({may} can{instead}); {NEXT}"
        raise click.BadParameter(hint, param_hint="FIELD=VALUE")
    return name, read_value(value)
