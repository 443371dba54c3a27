"""`swell submit FILE…`: jobs from files."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click

from swell.cli.common import client_or_start, connected, plural, print_json
from swell.cli.named_files import MissingScript
from swell.cli.sending import Document, described, prepare, send
from swell.cli.terminal import say
from swell.client.errors import Refused
from swell.jobfile.files import Packed

PROGRAMS = {".py": "python", ".sh": "bash"}
"""By suffix: what runs a file that is no job file."""
SHOWN = 10
_COUNTED = re.compile(r"^jobs\[(\d+)\]\.?(?::\s*)?", re.MULTILINE)
snapshot_option = click.option(
    "--snapshot/--no-snapshot", default=True, help="Run in a copy of this directory as it is now, or in place."
)


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE", help="Instead of what the files say: gpus=2.")
@click.option("--dry-run", is_flag=True, help="Submit nothing: say whether it is right, where and when it would run.")
@snapshot_option
@connected
def submit(
    home: Path | None,
    as_json: bool,
    files: tuple[Path, ...],
    changes: tuple[str, ...],
    dry_run: bool,
    snapshot: bool,
) -> None:
    """Submit the jobs in FILES (YAML or JSON; `-` reads them from standard input)."""
    read = [(path, document) for path in files for document in _read(path)]
    documents = [document for _, document in read]
    for change in changes:
        _set(documents, change)
    client = client_or_start(home)
    try:
        if dry_run:
            from swell.cli.dry_run import dry_run as try_out

            sys.exit(try_out(client, documents, as_json=as_json))
        packed = prepare(client, documents, snapshot=snapshot, home=home)
    except MissingScript as missing:
        raise MissingScript(f"{read[missing.index][0]}: {missing}") from missing
    try:
        accepted = send(client, documents)
    except Refused as refused:
        raise _in_files(refused, [path for path, _ in read]) from refused
    tell(accepted, packed, as_json=as_json)


def _in_files(refused: Refused, files: list[Path]) -> Refused:
    """The daemon counts jobs; people know files."""
    said = _COUNTED.sub(lambda match: f"{files[int(match[1])]}: ", str(refused))
    return Refused(refused.status, {**refused.problem, "detail": said})


def _set(documents: list[Document], change: str) -> None:
    """`gpus=2`, or `env.LR=0.1` for a field within a field. Values are read as YAML, as in the file."""
    from swell.jobfile.read import read_value

    name, equals, text = change.partition("=")
    *outer, field = name.split(".")
    if not equals or not field:
        raise click.BadParameter(f"{change!r} changes nothing; write FIELD=VALUE, such as gpus=2", param_hint="--set")
    for document in documents:
        place: Any = document
        for part in outer:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise click.BadParameter(f"{part} is no mapping in the file; set it whole", param_hint="--set")
        place[field] = read_value(text)


def _read(path: Path) -> list[Document]:
    from swell.jobfile.problems import JobFileError
    from swell.jobfile.read import read_documents

    if path.suffix in PROGRAMS:
        runs = f"`swell run -- {PROGRAMS[path.suffix]} {path}` runs it"
        raise click.BadParameter(f"{path} is a program, not a job file; {runs}", param_hint="FILE")
    try:
        text = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise click.BadParameter(f"cannot read {path}: {error.strerror}", param_hint="FILE") from error
    try:
        return read_documents(text)
    except JobFileError as error:
        raise click.BadParameter(f"{path}: {error}", param_hint="FILE") from error


def tell(accepted: dict[str, Any], packed: Packed | None, *, as_json: bool) -> None:
    """The ids, the snapshot, and what one would do next."""
    if as_json:
        print_json({**accepted, "files": packed.hash if packed else ""})
        return
    jobs = accepted["jobs"]
    for job in jobs[:SHOWN]:
        say(f"job {job['id']}  {job['name']}")
    if len(jobs) > SHOWN:
        say(f"… and {plural(len(jobs) - SHOWN, 'more job')}, up to {jobs[-1]['id']}; batch {accepted['batch']}")
    for note in accepted["notes"][:SHOWN]:
        say(f"note: {note}")
    if packed:
        say(described(packed))
    first = jobs[0]["id"]
    say(f"next:  swell logs -f {first}  |  swell explain {first}  |  swell ls")
