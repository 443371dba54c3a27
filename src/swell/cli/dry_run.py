"""`swell submit --dry-run`: is it right, would it fit, where and when would it start. Nothing is submitted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from swell.cli.common import print_json, table
from swell.cli.named_files import check_scripts
from swell.cli.sending import Document
from swell.cli.shell import complete
from swell.cli.terminal import safe, say
from swell.client.http import YAML, Client
from swell.jobfile.units import format_duration

SHOWN = 20
HEAD = ("NAME", "GPUS", "FITS", "COULD RUN ON", "WOULD START", "WOULD END")


def dry_run(client: Client, documents: Sequence[Document], *, as_json: bool) -> int:
    """Shows it; the exit code is 0 if all would be accepted."""
    check_scripts(documents, snapshot=True, local=client.address.local)
    for document in documents:
        complete(document, local=client.address.local, snapshot=True)
        document.pop("include", None)  # of the snapshot, which only a real submission takes
    text = "\n---\n".join(json.dumps(document, default=str) for document in documents)  # JSON is YAML
    view = client.request("POST", "/v1/jobs/validate", text.encode(), {"Content-Type": YAML})
    if as_json:
        print_json(view)
    else:
        _show(view)
    return 0 if view["valid"] and all(job["fits"] for job in view["jobs"]) else 1


def _show(view: dict[str, Any]) -> None:
    for problem in view["problems"][:SHOWN]:
        path = f"{problem['path']}: " if problem["path"] else ""
        say(safe(f"{path}{problem['what']}; {problem['fix']}"), err=True)
    jobs = view["jobs"]
    if jobs:
        say(table(HEAD, [_row(job) for job in jobs[:SHOWN]]))
        for job in jobs[:SHOWN]:
            if job["why"]:
                say(safe(f"{job['name']}: {job['why']}"))
        if view["count"] > SHOWN:
            say(f"… and {view['count'] - SHOWN} more")
    say("nothing was submitted" + ("; times are of the forecast, as things are now" if jobs else ""))


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
