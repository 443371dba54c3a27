"""`swell history`: what ran, for which user, how long, and what it took."""

from __future__ import annotations

import csv
import fnmatch
import io
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from swell.cli.common import client, connected, plural, print_json, table
from swell.cli.ls import ALL, STATES, take
from swell.cli.numbers import Count
from swell.cli.tables import state
from swell.cli.terminal import say
from swell.cli.times import Moment, clock
from swell.jobfile.units import format_duration

Job = dict[str, Any]
HEAD = ("ID", "NAME", "USER", "TEAM", "STATE", "SUBMITTED", "WAITED", "RAN", "GPU HOURS", "EXIT")
SUMMED = ("jobs", "completed", "failed", "cancelled")


@click.command()
@click.option("--since", type=Moment(), default="7d", show_default=True, help="Jobs that ended since, or have not.")
@click.option("--until", type=Moment(past=False), help="Jobs submitted before.")
@click.option("--user", default="", help="Only this user's.")
@click.option("--mine", is_flag=True, help="Only yours.")
@click.option("--team", default="", help="Only this team's.")
@click.option("--name", default="", help="Only of this name; patterns such as 'train-*' too.")
@click.option("--state", "states", multiple=True, type=click.Choice(STATES), help="Only in this; may be repeated.")
@click.option("--by", type=click.Choice(("user", "team")), help="Sums instead of jobs: per user, or per team.")
@click.option("-n", "--limit", type=Count(1), default=100, show_default=True, help="Most lines to show.")
@click.option("--csv", "as_csv", is_flag=True, help="All of them as CSV; times in UTC.")
@connected
def history(
    home: Path | None,
    as_json: bool,
    since: float,
    until: float | None,
    user: str,
    mine: bool,
    by: str | None,
    limit: int,
    as_csv: bool,
    **wanted: Any,
) -> None:
    """List past jobs with waiting time, running time and GPU hours; --by user or team sums them up.

    GPU hours are GPUs times the time they were held, over all attempts of a job.
    """
    found = client(home)
    every, _ = take(found, "all", ALL, {"user": found.me() if mine else user, "ended_since": since})
    jobs = [job for job in every if (until is None or job["submitted_s"] <= until) and _matches(job, **wanted)]
    if by:
        _show_sums(sums(jobs, by), by, as_json=as_json, as_csv=as_csv)
    elif as_json:
        print_json(jobs)
    elif as_csv:
        _write_csv(CSV_COLUMNS, [[value(job) for value in CSV_COLUMNS.values()] for job in jobs])
    else:
        _show(jobs, limit)


def _matches(job: Job, *, team: str, name: str, states: Sequence[str]) -> bool:
    return (
        (not team or job["team"] == team)
        and (not name or fnmatch.fnmatchcase(job["name"], name))
        and (not states or state(job).lower() in states)
    )


def _show(jobs: Sequence[Job], limit: int) -> None:
    if not jobs:
        say("no job in this time; --since 30d looks further back")
        return
    shown = list(reversed(jobs[:limit]))
    say(table(HEAD, [_row(job) for job in shown], whole=("STATE", "SUBMITTED")))
    hours = sum(map(gpu_hours, jobs))
    left = f" ({len(jobs) - limit} older ones not shown: -n {len(jobs)})" if len(jobs) > limit else ""
    say(f"{plural(len(jobs), 'job')}, {hours:.2f} GPU hours{left}")


def _row(job: Job) -> tuple[str, ...]:
    ended = job["ended_s"] is not None
    return (
        str(job["id"]),
        job["name"],
        job["user"] or "-",
        job["team"] or "-",
        state(job),
        clock(job["submitted_s"], short=True),
        format_duration(job["waited_s"]),
        format_duration(job["ran_s"]),
        f"{gpu_hours(job):.2f}",
        (str(job["exit_code"]) if job["exit_code"] is not None else job["exit_reason"] or "-") if ended else "-",
    )


def gpu_hours(job: Mapping[str, Any]) -> float:
    return float(job["gpu_s"]) / 3600


def sums(jobs: Sequence[Job], by: str) -> list[dict[str, Any]]:
    """One per user or team, the largest consumer first."""
    found: dict[str, dict[str, Any]] = {}
    for job in jobs:
        line = found.setdefault(job[by], {by: job[by], **dict.fromkeys(SUMMED, 0), "ran_s": 0.0, "gpu_hours": 0.0})
        line["jobs"] += 1
        kind = "failed" if job["state"] == "lost" else job["state"]
        if kind in line:
            line[kind] += 1
        line["ran_s"] += job["ran_s"]
        line["gpu_hours"] += gpu_hours(job)
    return sorted(found.values(), key=lambda line: (-line["gpu_hours"], line[by]))


def _show_sums(lines: Sequence[dict[str, Any]], by: str, *, as_json: bool, as_csv: bool) -> None:
    if as_json:
        print_json(lines)
    elif as_csv:
        names = (by, *SUMMED, "ran_s", "gpu_hours")
        _write_csv(names, [[line[name] for name in names] for line in lines])
    elif not lines:
        say("no job in this time; --since 30d looks further back")
    else:
        rows = [
            (
                line[by] or "-",
                *(str(line[name]) for name in SUMMED),
                format_duration(line["ran_s"]),
                f"{line['gpu_hours']:.2f}",
            )
            for line in lines
        ]
        say(table((by.upper(), *map(str.upper, SUMMED), "RAN", "GPU HOURS"), rows))


def _utc(at_s: float | None) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z") if at_s else ""


CSV_COLUMNS: Mapping[str, Callable[[Job], object]] = {
    "id": lambda job: job["id"],
    "name": lambda job: job["name"],
    "user": lambda job: job["user"],
    "team": lambda job: job["team"],
    "state": lambda job: job["state"],
    "gpus_min": lambda job: job["gpus"]["min"],
    "gpus_max": lambda job: job["gpus"]["max"],
    "submitted_at": lambda job: _utc(job["submitted_s"]),
    "started_at": lambda job: _utc(job["started_s"]),
    "ended_at": lambda job: _utc(job["ended_s"]),
    "waited_s": lambda job: round(job["waited_s"], 3),
    "ran_s": lambda job: round(job["ran_s"], 3),
    "gpu_hours": lambda job: round(gpu_hours(job), 6),
    "attempts": lambda job: job["attempts"],
    "exit_code": lambda job: "" if job["exit_code"] is None else job["exit_code"],
    "message": lambda job: job["message"],
}


def _write_csv(head: Any, rows: Sequence[Sequence[object]]) -> None:
    """Spreadsheets take a cell that begins with = + - @ for a formula; what users named must not become one."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([[_harmless(value) for value in row] for row in rows])
    say(text.getvalue().rstrip("\n"))


def _harmless(value: object) -> object:
    text = " ".join(value.split()) if isinstance(value, str) else value
    return f"'{text}" if isinstance(text, str) and text[:1] in ("=", "+", "-", "@") else text
