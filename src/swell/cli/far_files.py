"""Files of a job on another machine, brought here through the daemon: each whole or not at all, and continued where a
transfer broke off."""

from __future__ import annotations

import hashlib
import http.client
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swell.client.errors import DaemonUnreachable
from swell.client.http import Client
from swell.jobfile.outputs import FetchError, check_room, is_inside, is_output, matches
from swell.jobfile.units import format_size

PARTIAL = ".swell-partial-{job}"
"""Beside the files: what has arrived of some that are not whole yet."""
Arrived = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FarFile:
    path: str
    size: int
    modified_ns: str
    mode: int
    submitted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FarTree:
    """`notes`: what a person should know of files that are not in the list."""

    machine: str
    files: tuple[FarFile, ...]
    notes: tuple[str, ...] = ()

    def chosen(self, patterns: Sequence[str]) -> list[FarFile]:
        """Those that match, or else all that the job wrote."""
        found = (file for file in self.files if is_output(file.path))
        return [file for file in found if (matches(file.path, patterns) if patterns else not file.submitted)]


def far_tree(client: Client, job: int) -> FarTree:
    told = client.get(f"/v1/jobs/{job}/tree")
    files = tuple(FarFile(**file) for file in told["files"])
    if outside := next((file.path for file in files if not is_inside(file.path)), ""):
        raise FetchError(f"{told['machine']} names a file {outside!r} that is not inside of the job's directory")
    return FarTree(machine=told["machine"], files=files, notes=tuple(_notes(told)))


def _notes(told: dict[str, Any]) -> Iterator[str]:
    if told["skipped"]:
        yield f"{told['skipped']} files on {told['machine']} are left out: their names are not UTF-8, or unreadable"
    if not told["whole"]:
        yield f"there are more files on {told['machine']} than the {len(told['files']):,} that are listed"


def bring(
    client: Client, job: int, files: Sequence[FarFile], target: Path, *, replace: bool, shown: bool = True
) -> int:
    """Copy these below `target`; how many bytes. Refuses before it writes anything. What had arrived of a file when an
    earlier transfer broke off is not sent again, unless the file has changed. `shown`: with a bar on a terminal."""
    total = check_room({file.path: file.size for file in files}, target, replace=replace)
    partial = target / PARTIAL.format(job=job)
    partial.mkdir(exist_ok=True)
    with _bar(total if shown else 0) as arrived:
        for file in files:
            _bring_one(client, job, file, target, partial, arrived)
    shutil.rmtree(partial, ignore_errors=True)
    return total


def _bring_one(client: Client, job: int, file: FarFile, target: Path, partial: Path, arrived: Arrived) -> None:
    part = partial / part_name(job, file)
    arrived(_size(part))
    while (offset := _size(part)) < file.size or not part.exists():
        _continue(client, job, file, part, arrived)
        if _size(part) == offset and file.size:
            raise FetchError(f"{file.path} breaks off at byte {offset:,} of {file.size:,}; the same command continues")
    part.chmod(file.mode & 0o777 | 0o600)
    final = target / file.path
    final.parent.mkdir(parents=True, exist_ok=True)
    part.replace(final)


def part_name(job: int, file: FarFile) -> str:
    """Of what has arrived: another for every version of a file, so that two are never mixed."""
    named = f"{job}\0{file.path}\0{file.size}\0{file.modified_ns}"
    return hashlib.sha256(named.encode()).hexdigest()[:32]


def _continue(client: Client, job: int, file: FarFile, part: Path, arrived: Arrived) -> None:
    """From what is here, until the end or until it breaks off. A file that has grown is cut where it was listed."""
    offset = _size(part)
    with part.open("ab") as out:
        if not file.size:
            return
        try:
            for data in client.raw(f"/v1/jobs/{job}/content", path=file.path, offset=offset):
                wanted = data[: file.size - offset]
                out.write(wanted)
                offset += len(wanted)
                arrived(len(wanted))
        except (OSError, http.client.HTTPException, DaemonUnreachable):
            client.close()  # whoever called sees how much came
    if offset < file.size:
        client.close()  # half an answer may be on it


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@contextmanager
def _bar(total: int) -> Iterator[Arrived]:
    """On a terminal, of bytes; else nothing is shown but the end."""
    if not sys.stderr.isatty() or not total:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(format_size(total), total=total)
        yield lambda size: progress.advance(task, size)
