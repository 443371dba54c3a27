"""`swell fetch JOB`: what a job wrote, brought to where its user is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from swell.cli import completion
from swell.cli.common import client, connected, plural, print_json
from swell.cli.far_files import bring, far_tree
from swell.cli.terminal import safe, say
from swell.client.http import Client
from swell.jobfile.outputs import FetchError, copy, matching, written
from swell.jobfile.units import format_size

SHOWN = 20


@click.command()
@click.argument("job", type=completion.JOB)
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
@click.option("--into", type=click.Path(path_type=Path, file_okay=False), help="Directory.  [default: NAME-ID here]")
@click.option("--replace", is_flag=True, help="Write over files that are there already.")
@click.option("--checkpoints", is_flag=True, help="What it saved by swell's library, instead of what lies in its copy.")
@click.option("--list", "only_list", is_flag=True, help="Only list the files.")
@connected
def fetch(
    home: Path | None,
    as_json: bool,
    job: str,
    patterns: tuple[str, ...],
    into: Path | None,
    replace: bool,
    checkpoints: bool,
    only_list: bool,
) -> None:
    """Copy files of JOB here: those that match PATTERNS ('*.pt', results/), else all that it wrote.

    Files that were submitted and have not changed are not copied unless a pattern names them; links never are. What is
    on another machine comes through the daemon; the same command continues a transfer that broke off.
    """
    found = client(home)
    view = found.job(job)
    place = found.get(f"/v1/jobs/{view['id']}/files")
    target = into or Path(f"{view['name']}-{view['id']}")
    wanted = Wanted(patterns=patterns, target=target, replace=replace, only_list=only_list)
    elsewhere = place["machine"] or not found.address.local
    if checkpoints:
        where, names, size = _saved(view, place, wanted, local=found.address.local)
    else:
        where, names, size = _from_afar(found, view, wanted) if elsewhere else _from_here(view, place, wanted)
    if as_json:
        print_json({"job": view["id"], "directory": where, "into": str(target), "files": names})
        return
    for name in names[:SHOWN]:
        say(safe(name))
    if len(names) > SHOWN:
        say(f"… and {plural(len(names) - SHOWN, 'more file')}")
    if not only_list:
        say(f"{plural(len(names), 'file')}, {format_size(size)}, copied into {target}", err=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    patterns: Sequence[str]
    target: Path
    replace: bool
    only_list: bool


Brought = tuple[str, list[str], int]
"""From where, which files, how many bytes."""


def _from_here(view: dict[str, Any], place: dict[str, Any], wanted: Wanted) -> Brought:
    directory = Path(place["directory"])
    if not directory.is_dir():
        raise _none_here(view["id"])
    if view["spec"]["workdir"].startswith("/"):
        raise FetchError(f"job {view['id']} ran in {directory} itself: what it wrote is there")
    submitted = Path(place["submitted"], view["spec"]["workdir"]) if place["submitted"] else None
    saved = f"its checkpoints: `swell fetch {view['id']} --checkpoints`" if place["checkpoints"]["files"] else ""
    return _copied(directory, submitted, wanted, saved or f"`ls {directory}` shows what is there")


def _copied(directory: Path, submitted: Path | None, wanted: Wanted, instead: str) -> Brought:
    """`instead`: what people read where nothing is to be brought."""
    names = matching(directory, wanted.patterns) if wanted.patterns else written(directory, submitted)
    if not names:
        raise _nothing(str(directory), wanted, instead)
    size = 0 if wanted.only_list else copy(directory, names, wanted.target, replace=wanted.replace)
    return str(directory), names, size


def _saved(view: dict[str, Any], place: dict[str, Any], wanted: Wanted, *, local: bool) -> Brought:
    """Checkpoints that lie on this machine, in the daemon's keeping."""
    if not place["checkpoints"]["files"]:
        named = view["spec"]["checkpoint_dir"]
        where = f"it keeps them in {named}" if named else f"`swell show {view['id']}` says what it saved, and where"
        raise FetchError(f"no checkpoints of job {view['id']} are kept on the daemon's machine; {where}")
    directory = Path(place["checkpoints"]["path"])
    if not local or not directory.is_dir():
        raise FetchError(
            f"the checkpoints of job {view['id']} are in {directory} on the daemon's machine; copy them there"
        )
    return _copied(directory, None, wanted, f"`ls {directory}` shows what is there")


def _from_afar(found: Client, view: dict[str, Any], wanted: Wanted) -> Brought:
    """Through the daemon, from the machine where the latest attempt ran."""
    tree = far_tree(found, view["id"])
    for note in tree.notes:
        say(safe(f"note: {note}"), err=True)
    files = tree.chosen(wanted.patterns)
    where = f"job {view['id']}'s directory on {tree.machine}"
    if not files:
        raise _nothing(where, wanted, f"`swell fetch {view['id']} --list '*'` shows what is there")
    size = 0 if wanted.only_list else bring(found, view["id"], files, wanted.target, replace=wanted.replace)
    return where, [file.path for file in files], size


def _nothing(where: str, wanted: Wanted, look: str) -> FetchError:
    lacks = f"matches {' or '.join(wanted.patterns)}" if wanted.patterns else "was written by it"
    return FetchError(f"no file in {where} {lacks}; {look}")


def _none_here(job: int) -> FetchError:
    return FetchError(f"job {job} has no files: it has not started yet, or they were removed")


def located(found: Client, job: int) -> dict[str, Any]:
    """Where the job's files are, on this machine; for those who need them in place."""
    place: dict[str, Any] = found.get(f"/v1/jobs/{job}/files")
    if not place["machine"] and Path(place["directory"]).is_dir():
        return place
    if found.address.local and not place["machine"]:
        raise _none_here(job)
    where = place["machine"] or "the daemon's machine"
    raise FetchError(f"the files of job {job} are on {where}; `swell fetch {job}` brings them here")
