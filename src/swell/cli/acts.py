"""A command that is the same for each of several jobs."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from swell.cli.cancel import spread
from swell.cli.common import client, print_json
from swell.cli.ls import ALL, take
from swell.cli.tables import state
from swell.cli.terminal import say
from swell.client.http import Client
from swell.core.errors import SwellError

NOT_ENDED = ("running", "queued")
View = dict[str, Any]


def _told(view: View) -> str:
    return f"priority {view['priority']}  {view['why']}"


def act_on(
    home: Path | None,
    jobs: Sequence[str],
    verb: str,
    *,
    as_json: bool,
    body: object = None,
    groups: Sequence[str] = NOT_ENDED,
    told: Callable[[View], str] = _told,
) -> None:
    """`groups`: of which jobs a pattern names all. `told`: what to say of each job afterwards."""
    found = client(home)
    views: list[View] = [found.act(ref, verb, body) for ref in named(found, jobs, groups)]
    if as_json:
        print_json(views)
        return
    for view in views:
        say(f"job {view['id']}  {state(view)}  {told(view)}".rstrip())


def named(found: Client, jobs: Sequence[str], groups: Sequence[str]) -> Iterator[int | str]:
    """Ids and names; ranges (5-9) and patterns ('train-*') spread out."""
    for text in jobs:
        yield from _matching(found, text, groups) if any(c in text for c in "*?[") else spread(text)


def _matching(found: Client, pattern: str, groups: Sequence[str]) -> list[int]:
    lines = [line for group in groups for line in take(found, group, ALL, {})[0]]
    ids = sorted(line["id"] for line in lines if fnmatch.fnmatchcase(line["name"], pattern))
    if not ids:
        raise SwellError(f"no job of that kind has a name like {pattern!r}; `swell ls --all` lists the jobs there are")
    return ids
