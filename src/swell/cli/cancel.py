"""`swell cancel`: one job, or a thousand at once."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from swell.cli import completion
from swell.cli.common import client, connected, plural, print_json
from swell.cli.terminal import say

SHOWN = 10
_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})")
MAX_RANGE = 10_000


@click.command()
@click.argument("jobs", type=completion.JOB, nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that have not ended.")
@click.option("--name", default="", help="All of this name; patterns such as 'train-*' too.")
@click.option("--batch", default="", help="All submitted together under this name.")
@click.option("--user", default="", help="All of this user.")
@click.option("--mine", is_flag=True, help="All of yours.")
@click.option("--reason", default="", help="Why; kept in the record.")
@click.option("--now", is_flag=True, help="Kill running ones at once, without their grace.")
@connected
def cancel(home: Path | None, as_json: bool, jobs: tuple[str, ...], everything: bool, mine: bool, **said: Any) -> None:
    """Cancel JOBS: ids, ranges (5-9), names, patterns ('train-*') or `last`.

    Queued jobs are given up; running ones are asked to stop, then made to after their grace.
    """
    body: dict[str, Any] = {"jobs": [job for text in jobs for job in spread(text)], "all": everything, **said}
    if not (jobs or everything or mine or body["name"] or body["batch"] or body["user"]):
        raise click.UsageError("which jobs? Name them, or use --all, --mine, --name or --batch")
    found = client(home)
    if mine:
        body["user"] = found.me()
    answer = found.post("/v1/jobs/cancel", body)
    conclude(answer, "cancelled", as_json=as_json)


def spread(text: str) -> list[int | str]:
    """`5-9` is five jobs."""
    match = _RANGE.fullmatch(text)
    if match is None:
        return [text]
    low, high = int(match[1]), int(match[2])
    if not 0 <= high - low < MAX_RANGE:
        raise click.BadParameter(f"{text}: a range goes up, and has at most {MAX_RANGE} jobs", param_hint="JOBS")
    return list(range(low, high + 1))


def conclude(answer: dict[str, Any], what: str, *, as_json: bool) -> NoReturn:
    """Say to which jobs `what` was done, and to which it could not be; and leave."""
    if as_json:
        print_json(answer)
    else:
        _tell(answer, what)
    sys.exit(2 if answer["problems"] else 0)


def _tell(answer: dict[str, Any], what: str) -> None:
    done = answer[what]
    shown = ", ".join(map(str, done[:SHOWN])) + (", …" if len(done) > SHOWN else "")
    say(f"{what} {plural(len(done), 'job')}" + (f": {shown}" if done else ""))
    for problem in answer["problems"][:SHOWN]:
        say(f"not {what}: {problem['detail']}", err=True)
    if len(answer["problems"]) > SHOWN:
        say(f"… and {len(answer['problems']) - SHOWN} more that could not be {what}", err=True)
