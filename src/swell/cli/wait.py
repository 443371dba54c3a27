"""`swell wait JOB…`: return when they have ended; for scripts."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

import click

from swell.cli import completion
from swell.cli.acts import named
from swell.cli.common import client, connected, plural, print_json
from swell.cli.follow import ENDED, end_line
from swell.cli.patience import AWAY_S, patiently
from swell.cli.terminal import say
from swell.core.errors import SwellError
from swell.jobfile.units import parse_duration_s

EVERY_S = 0.5
EXIT_TIMED_OUT = 124


@click.command()
@click.argument("jobs", type=completion.JOB, nargs=-1, required=True)
@click.option("--timeout", help="Give up after this time, such as 2h; exit code 124.")
@connected
def wait(home: Path | None, as_json: bool, jobs: tuple[str, ...], timeout: str | None) -> None:
    """Wait until JOBS (ids, ranges, names, patterns or `last`) have ended: 0 if all completed, else 1."""
    found = client(home)
    until_s = time.monotonic() + _seconds(timeout) if timeout else float("inf")
    left = [found.job(ref)["id"] for ref in named(found, jobs, ("all",))]
    ended = []
    while left:
        view = patiently(partial(found.job, left[0]), away_s=min(AWAY_S, until_s - time.monotonic()))
        if view["state"] in ENDED:
            ended.append(view)
            left.pop(0)
            if not as_json:
                say(end_line(view), err=True)
        elif timeout and time.monotonic() > until_s:
            after = f"{timeout}s" if timeout[-1].isdigit() else timeout  # a number alone is seconds
            say(f"{plural(len(left), 'job')} not ended after {after}: {', '.join(map(str, left))}", err=True)
            sys.exit(EXIT_TIMED_OUT)
        else:
            time.sleep(EVERY_S)
    if as_json:
        print_json(ended)
    sys.exit(0 if all(view["state"] == "completed" for view in ended) else 1)


def _seconds(text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise SwellError(f"--timeout: {error}") from error
