"""`swell hooks`: where notices go, and whether they arrive."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import click

from swell.cli.common import client, connected, print_json, table
from swell.cli.numbers import Count
from swell.cli.terminal import say


@click.command()
@click.option("--test", "name", default="", metavar="NAME", help="Send a notice to this hook now.")
@click.option("--replay", default="", metavar="NAME", help="Send this hook the notices after event --after again.")
@click.option("--after", type=Count(min=0), metavar="SEQ", help="With --replay: the last `seq` to leave out.")
@connected
def hooks(home: Path | None, as_json: bool, name: str, replay: str, after: int | None) -> None:
    """Show where notices of ended, failed, preempted and starving jobs and of machines go (`hooks` in config.yaml)."""
    if bool(replay) != (after is not None):
        raise click.UsageError("--replay NAME and --after SEQ go together; every notice carries its `seq`")
    daemon = client(home)
    if name:
        answer = daemon.post(f"/v1/hooks/{quote(name, safe='')}/test")
        _answered(answer, as_json, f"{name} took it", f"{name} did not take it: {answer['trouble']}")
    if replay:
        answer = daemon.post(f"/v1/hooks/{quote(replay, safe='')}/replay", {"after": after})
        took = f"{replay} took {answer['sent']} notice{'' if answer['sent'] == 1 else 's'} again"
        _answered(answer, as_json, took, f"{took}, and then did not: {answer['trouble']}")
    found = daemon.get("/v1/hooks")["hooks"]
    if as_json:
        print_json(found)
    elif not found:
        say("there are no hooks; config.yaml: `hooks: {team: {url: 'https://…', style: slack}}`, then restart")
    else:
        rows = [(h["name"], h["to"], " ".join(h["kinds"]), str(h["sent"]), h["trouble"] or "-") for h in found]
        say(table(("NAME", "TO", "KINDS", "SENT", "TROUBLE"), rows))


def _answered(answer: dict[str, Any], as_json: bool, well: str, ill: str) -> NoReturn:
    if as_json:
        print_json(answer)
    else:
        say(ill if answer["trouble"] else well)
    raise SystemExit(1 if answer["trouble"] else 0)
