"""`swell rm`: take ended jobs out of the record, and have their disk space back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from swell.cli.cancel import conclude, spread
from swell.cli.common import client, connected
from swell.cli.follow import ENDED
from swell.client.errors import Refused


@click.command()
@click.argument("jobs", nargs=-1, required=True)
@connected
def rm(home: Path | None, as_json: bool, jobs: tuple[str, ...]) -> None:
    """Remove ended JOBS, with all they left on disk: ids, ranges (5-9), names or `last`.

    Deletes their record, logs, working copies and checkpoints; there is no way back. Directories of your own that
    a job file names (`workdir`, `checkpoint_dir`) are not touched. Without this everything is kept.
    """
    found = client(home)
    removed: list[int] = []
    problems: list[dict[str, Any]] = []
    for ref in (ref for text in jobs for ref in spread(text)):
        try:
            job = found.job(ref)
            if job["state"] not in ENDED:
                problems.append(
                    {"job": ref, "detail": f"job {job['id']} has not ended; `swell cancel {job['id']}` first"}
                )
                continue
            found.remove(job["id"])
            removed.append(job["id"])
        except Refused as refused:
            problems.append({"job": ref, "detail": str(refused)})
    conclude({"removed": removed, "problems": problems}, "removed", as_json=as_json)
