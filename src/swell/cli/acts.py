"""A command that is the same for each of several jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swell.cli.cancel import spread
from swell.cli.common import client, print_json
from swell.cli.tables import state
from swell.cli.terminal import say


def act_on(home: Path | None, jobs: Sequence[str], verb: str, *, as_json: bool, body: object = None) -> None:
    found = client(home)
    views: list[dict[str, Any]] = [found.act(ref, verb, body) for text in jobs for ref in spread(text)]
    if as_json:
        print_json(views)
        return
    for view in views:
        say(f"job {view['id']}  {state(view)}  priority {view['priority']}  {view['why']}".rstrip())
