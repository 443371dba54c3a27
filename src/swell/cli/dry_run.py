"""`swell submit --dry-run`: is it right, would it fit, where and when would it start. Nothing is submitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from swell.cli.common import print_json, table
from swell.cli.sending import Document, check, refused, validated
from swell.cli.terminal import safe, say
from swell.client.http import Client
from swell.jobfile.units import format_duration

SHOWN = 20
HEAD = ("NAME", "GPUS", "FITS", "COULD RUN ON", "WOULD START", "WOULD END")


def dry_run(client: Client, documents: Sequence[Document], *, as_json: bool) -> int:
    """Shows it; the exit code is 0 if all would be accepted. Raises Refused if a document is wrong."""
    check(client, documents, snapshot=True)
    view = validated(client, documents)
    if as_json:
        print_json(view)
    elif view["problems"]:
        raise refused(view)
    else:
        _show(view)
    return 0 if view["valid"] and all(job["fits"] for job in view["jobs"]) else 1


def _show(view: dict[str, Any]) -> None:
    jobs = view["jobs"]
    say(table(HEAD, [_row(job) for job in jobs[:SHOWN]]))
    for job in jobs[:SHOWN]:
        if job["why"]:
            say(safe(f"{job['name']}: {job['why']}"))
    if view["count"] > SHOWN:
        say(f"… and {view['count'] - SHOWN} more")
    say("nothing was submitted; times are of the forecast, as things are now")


def _row(job: dict[str, Any]) -> tuple[str, ...]:
    low, high = job["gpus"]["min"], job["gpus"]["max"]
    return (
        job["name"],
        str(high) if low == high else f"{low}-{high}",
        "yes" if job["fits"] else "no",
        ", ".join(job["nodes"]) or ("several together" if job["fits"] else "-"),
        _when(job.get("starts_in_s")),
        _when(job.get("ends_in_s")),
    )


def _when(in_s: float | None) -> str:
    if in_s is None:
        return "not known"
    return "at once" if in_s < 2.0 else f"in {format_duration(in_s)}"
