"""`swell fetch JOB`: what a job wrote, brought to where its user is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from swell.cli import completion
from swell.cli.common import client, connected, plural, print_json
from swell.cli.terminal import safe, say
from swell.client.http import Client
from swell.jobfile.outputs import FetchError, copy, matching, written
from swell.jobfile.units import format_size

SHOWN = 20


@click.command()
@click.argument("job", shell_complete=completion.jobs)
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
@click.option("--into", type=click.Path(path_type=Path, file_okay=False), help="Directory.  [default: NAME-ID here]")
@click.option("--replace", is_flag=True, help="Write over files that are there already.")
@click.option("--list", "only_list", is_flag=True, help="Only list the files.")
@connected
def fetch(
    home: Path | None,
    as_json: bool,
    job: str,
    patterns: tuple[str, ...],
    into: Path | None,
    replace: bool,
    only_list: bool,
) -> None:
    """Copy files of JOB here: those that match PATTERNS ('*.pt', results/), else all that it wrote.

    Files that were submitted and have not changed are not copied unless a pattern names them; links never are.
    """
    found = client(home)
    view = found.job(job)
    if view["spec"]["workdir"].startswith("/"):
        raise FetchError(f"job {view['id']} ran in {view['spec']['workdir']} itself: what it wrote is there")
    place = located(found, view["id"])
    directory = Path(place["directory"])
    submitted = Path(place["submitted"], view["spec"]["workdir"]) if place["submitted"] else None
    names = matching(directory, patterns) if patterns else written(directory, submitted)
    if not names:
        wanted = f"matches {' or '.join(patterns)}" if patterns else "was written by it"
        raise FetchError(f"no file in {directory} {wanted}; `ls {directory}` shows what is there")
    target = into or Path(f"{view['name']}-{view['id']}")
    size = 0 if only_list else copy(directory, names, target, replace=replace)
    if as_json:
        print_json({"job": view["id"], "directory": str(directory), "into": str(target), "files": names})
        return
    for name in names[:SHOWN]:
        say(safe(name))
    if len(names) > SHOWN:
        say(f"… and {plural(len(names) - SHOWN, 'more file')}")
    if not only_list:
        say(f"{plural(len(names), 'file')}, {format_size(size)}, copied into {target}", err=True)


def located(found: Client, job: int) -> dict[str, Any]:
    """Where the job's files are, on this machine."""
    place: dict[str, Any] = found.get(f"/v1/jobs/{job}/files")
    if not Path(place["directory"]).is_dir():
        if found.address.local:
            raise FetchError(f"job {job} has no files: it has not started yet, or they were removed")
        where = f"on the daemon's machine, in {place['directory']}"
        raise FetchError(f"the files of job {job} are {where}; this version copies them only there")
    return place
