"""`swell logs JOB`: what it printed; with -f until it has ended."""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from swell.cli import completion
from swell.cli.common import client, connected, print_json
from swell.cli.follow import end_line, exit_code, follow
from swell.cli.numbers import Count
from swell.cli.run import EXIT_DETACHED
from swell.cli.terminal import LogWriter, say
from swell.cli.times import FORMS, Moment
from swell.client.http import Client, job_path


class Pattern(click.ParamType[re.Pattern[bytes]]):
    name = "pattern"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> re.Pattern[bytes]:
        try:
            return re.compile(str(value).encode())
        except re.error as error:
            self.fail(f"{value!r} is not a regular expression ({error}); as for grep -E", param, ctx)


def _rank(_: click.Context, __: click.Parameter, value: str) -> str:
    if value != "all" and not value.isdecimal():
        raise click.BadParameter(f"{value!r} is not the number of a process; write 0, 1, … or all")
    return value


@click.command()
@click.argument("job", type=completion.JOB)
@click.option(
    "-f", "--follow", "follows", is_flag=True, help="Go on until the job has ended; then 0, or 1 if it failed."
)
@click.option("--rank", default="0", show_default=True, callback=_rank, help="Of this process; `all` goes with -f.")
@click.option("--attempt", type=Count(0), default=0, help="Only this attempt.  [default: all]")
@click.option("-n", "--tail", type=Count(1), help="How many lines to show, the last ones.")
@click.option(
    "--since", type=Moment(), default=0.0, help=f"Only what was printed since then, or up to 5 s before: {FORMS}."
)
@click.option("--grep", type=Pattern(), help="Only lines in which this regular expression is found.")
@connected
def logs(
    home: Path | None,
    as_json: bool,
    job: str,
    follows: bool,
    rank: str,
    attempt: int,
    tail: int | None,
    since: float,
    grep: re.Pattern[bytes] | None,
) -> None:
    """Show what JOB printed: bytes as they came, or JSON with --json.

    On a terminal only colours and progress bars get through, no other orders to the terminal.
    """
    if rank == "all" and not follows:
        raise click.UsageError("--rank all goes with -f; without it name one process, such as --rank 1")
    if follows and grep:
        raise click.UsageError("--grep does not go with -f; `swell logs -f JOB | grep …` does")
    if follows and tail and (since or rank == "all"):
        raise click.UsageError("-n with -f goes with neither --since nor --rank all; leave one out")
    found = client(home)
    if follows:
        sys.exit(_to_the_end(found, job, as_json=as_json, rank=rank, attempt=attempt, tail=tail or 0, since=since))
    chunks = found.raw(job_path(job, "logs"), rank=rank, attempt=attempt, since=since)
    chosen = (line for line in _lines(chunks) if grep.search(line)) if grep else chunks
    wanted = deque(_lines(chosen), maxlen=tail) if tail else chosen
    if as_json:
        print_json({"job": job, "rank": rank, "text": b"".join(wanted).decode(errors="replace")})
        return
    out = LogWriter(sys.stdout)
    for data in wanted:
        out.write_bytes(data)
    out.flush()


def _to_the_end(found: Client, job: str, *, as_json: bool, rank: str, attempt: int, tail: int, since: float) -> int:
    """Follow it; the exit code. Of what is there, the last `tail` lines of the latest attempt; 0: all."""
    out = sys.stderr if as_json else sys.stdout
    try:
        offset = 0
        if tail:
            attempt = attempt or found.job(job)["attempts"]
            offset = _show_last(found, job, rank, attempt, tail, LogWriter(out))
        end = follow(found, job, rank=rank, attempt=attempt, offset=offset, since=since, out=out)
    except KeyboardInterrupt:
        return EXIT_DETACHED
    say(end_line(end), err=True)
    if as_json:
        print_json(end)
    return exit_code(end)


def _show_last(found: Client, job: str, rank: str, attempt: int, count: int, out: LogWriter) -> int:
    """Its last lines; how many bytes there are before what comes next."""
    size, last = 0, deque[bytes](maxlen=count)
    if attempt:
        for line in _lines(found.raw(job_path(job, "logs"), rank=rank, attempt=attempt)):
            size += len(line)
            last.append(line)
    for line in last:
        out.write_bytes(line)
    out.flush()
    return size


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """One after the other, the last one also without its end, holding no more than one."""
    rest = b""
    for data in chunks:
        *whole, rest = (rest + data).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if rest:
        yield rest
