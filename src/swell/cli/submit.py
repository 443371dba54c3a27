"""`swell submit FILE…`: jobs from files."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from swell.cli.common import client_or_start, connected, plural, print_json
from swell.cli.missing import FieldsAreNoOptions
from swell.cli.named_files import NothingToRun
from swell.cli.named_programs import INTERPRETERS
from swell.cli.sending import Document, described, needs_gpus, prepare, send
from swell.cli.terminal import say
from swell.client.errors import Refused
from swell.jobfile.files import Packed

SHOWN = 10
CANNOT_BE = 422
"""The daemon's status for a job that it would never run as it is."""
_COUNTED = re.compile(r"^jobs\[(\d+)\]\.?(?::\s*)?", re.MULTILINE)
if TYPE_CHECKING:
    from swell.jobfile.problems import Problem

snapshot_option = click.option(
    "--snapshot/--no-snapshot", default=True, help="Run in a copy of this directory as it is now, or in place."
)


class _JobFile(click.Path):
    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        return "Write swell submit job.yaml, or swell run -- python train.py for a command without a file."


class _Submit(FieldsAreNoOptions):
    how = "--set FIELD=VALUE"


@click.command(cls=_Submit)
@click.argument("files", nargs=-1, required=True, type=_JobFile(path_type=Path, allow_dash=True))
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
    read = [job for path in files for job in read_jobs(path)]
    documents = [job.document for job in read]
    for change in changes:
        _set(documents, change)
    client = client_or_start(home, needs_gpus=any(map(needs_gpus, documents)))
    try:
        if dry_run:
            from swell.cli.dry_run import dry_run as try_out

            sys.exit(try_out(client, documents, as_json=as_json))
        packed = prepare(client, documents, snapshot=snapshot, home=home)
        accepted = send(client, documents)
    except NothingToRun as missing:
        raise NothingToRun(f"{read[missing.index].file}: {missing}") from missing
    except Refused as refused:
        raise in_files(refused, read, [change.partition("=")[0] for change in changes]) from refused
    tell(accepted, packed, as_json=as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A job as a file has it. `index`: which of the file's jobs it is."""

    file: str
    text: str
    index: int
    document: Document


def in_files(refused: Refused, read: list[Read], changed: list[str]) -> Refused:
    """The daemon counts jobs; people know files and lines."""
    if refused.problems:
        from swell.jobfile.problems import JobFileError, Problem

        problems = [Problem(path=str(p["path"]), what=p["what"], fix=p["fix"]) for p in refused.problems]
        placed = [_placed(problem, read, changed) for problem in problems]
        said = str(JobFileError([problem for _, problem in sorted(placed, key=lambda pair: pair[0])]))
    else:
        said = _COUNTED.sub(lambda match: f"{read[int(match[1])].file}: ", str(refused))
        said = f"{read[0].file}: {said}" if refused.status == CANNOT_BE and len(read) == 1 else said
    return Refused(refused.status, {**refused.problem, "detail": said})


def _placed(problem: Problem, read: list[Read], changed: list[str]) -> tuple[tuple[int, int], Problem]:
    """The problem with its file and line, and where that is among all."""
    from swell.jobfile.lines import written_at

    counted = _COUNTED.match(problem.path)
    index = int(counted[1]) if counted else 0
    field = problem.path[counted.end() :] if counted else problem.path
    if any(f"{field}.".startswith(f"{name}.") for name in changed):
        return (-1, 0), replace(problem, path=f"--set {field}")
    job = read[index]
    line = written_at(f"jobs[{job.index}].{field}", job.text)
    place = f"{job.file}, line {line}" if line else job.file
    return (index, line), replace(problem, path=f"{place}: {field}" if field else place)


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


def read_jobs(path: Path) -> list[Read]:
    from swell.jobfile.problems import JobFileError
    from swell.jobfile.read import read_documents

    if path.suffix in INTERPRETERS:
        runs = f"`swell run -- {INTERPRETERS[path.suffix]} {path}` runs it"
        raise click.BadParameter(f"{path} is a program, not a job file; {runs}", param_hint="FILE")
    try:
        text = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise click.BadParameter(f"cannot read {path}: {error.strerror}", param_hint="FILE") from error
    try:
        documents = read_documents(text)
    except JobFileError as error:
        raise click.BadParameter(f"{path}: {error}", param_hint="FILE") from error
    name, lines = "standard input" if str(path) == "-" else str(path), text.decode(errors="replace")
    return [Read(file=name, text=lines, index=index, document=found) for index, found in enumerate(documents)]


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
