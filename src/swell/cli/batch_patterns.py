"""Files that `--copy`, `--exclude` and `--copy-back` of a batch name, as somebody in this directory writes them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from swell.cli.terminal import safe, say
from swell.jobfile.choosing import matches
from swell.jobfile.files import Packed


def from_here(patterns: Sequence[str]) -> tuple[str, ...]:
    """As seen from the top of the working directory. `.` is all of it, as if no pattern was given."""
    found = tuple(map(_from_here, patterns))
    return () if "." in found else found


def _from_here(pattern: str) -> str:
    """`./a/` -> `a/`. One that begins with `/` stays, as in .gitignore, unless it is the path of something in here."""
    here = Path.cwd()
    path = os.path.normpath(here / pattern)
    if pattern.startswith("/") and not Path(path).is_relative_to(here):
        return pattern
    found = os.path.relpath(path, here)
    if found == ".." or found.startswith("../"):
        raise click.UsageError(f"{pattern} is outside of this directory; start from a directory that has it below")
    return found + ("/" if pattern.endswith("/") and found != "." else "")


def tell_unmatched(patterns: Sequence[str], packed: Packed | None) -> None:
    for pattern in patterns if packed else ():
        if packed and not any(matches(name, [pattern]) for name in packed.names):
            say(safe(f"WARNING: {pattern} sends nothing: no file here matches it"), err=True)
