"""Who did what, when, from where: every request that changes something, and every one that was refused to somebody.

Two files of lines in the daemon's home, each with one predecessor: what was done, and what was refused, so that nobody
pushes out the one by trying often enough. A line is written before the answer leaves, not synced to disk: the events of
what was done are (`by` in the event log); this adds the address and what did not become an event. Never bodies.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from starlette.types import Scope

from swell.core.accounts import Caller, Way
from swell.home import AUDIT_NAME, REFUSED_NAME, open_private

log = logging.getLogger(__name__)

MAX_BYTES = 8 << 20
"""Of one file; then it becomes the predecessor, and the predecessor goes."""
REFUSED = frozenset({401, 403, 429})
READS = frozenset({"GET", "HEAD"})
NOTE = "swell.audit"
"""Where a route puts what its path does not say, such as the ids of submitted jobs."""
MAX_TEXT = 300


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    at_s: float
    user: str  # empty: unknown
    way: str  # how the daemon knew: owner, token, socket; empty: it did not
    peer: str  # an address, or uid:1000 on the Unix socket
    method: str
    path: str
    status: int
    what: str = ""  # ids of submitted jobs


def worth_noting(method: str, status: int, caller: Caller | None) -> bool:
    """Reports of runs are in the event log; reads that succeed change nothing."""
    if caller is not None and caller.way is Way.RUN:
        return status in REFUSED
    return status in REFUSED or method not in READS


class Audit:
    """`home`: the directory that the files lie in."""

    def __init__(self, home: Callable[[], Path], now_s: Callable[[], float], max_bytes: int = MAX_BYTES) -> None:
        self._home = home
        self._now_s = now_s
        self._max_bytes = max_bytes

    def note(self, scope: Scope, caller: Caller | None, peer: str, status: int) -> None:
        """A failure here is logged and never refuses the request."""
        if not worth_noting(scope["method"], status, caller):
            return
        entry = Entry(
            at_s=round(self._now_s(), 6),  # by which the entries of both files are put in order
            user=caller.user if caller else "",
            way=caller.way if caller else "",
            peer=peer,
            method=scope["method"],
            path=scope["path"][:MAX_TEXT],
            status=status,
            what=str(scope.get(NOTE, ""))[:MAX_TEXT],
        )
        try:
            self._write(self._home() / (REFUSED_NAME if status in REFUSED else AUDIT_NAME), entry)
        except OSError as error:
            log.error("a line of the audit log could not be written (%s): %s", error, entry)

    def _write(self, path: Path, entry: Entry) -> None:
        fd = open_private(path)
        try:
            os.write(fd, msgspec.json.encode(entry) + b"\n")
            full = os.fstat(fd).st_size > self._max_bytes
        finally:
            os.close(fd)
        if full:
            path.replace(_predecessor(path))

    def entries(self, matches: Callable[[Entry], bool], limit: int) -> list[dict[str, Any]]:
        """The newest that match, newest first. Blocking."""
        paths = [self._home() / name for name in (AUDIT_NAME, REFUSED_NAME)]
        found = [entry for path in paths for entry in _read(path) if matches(entry)]
        found.sort(key=lambda entry: entry.at_s, reverse=True)
        return [msgspec.to_builtins(entry) for entry in found[:limit]]


def _predecessor(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


def _read(path: Path) -> Iterator[Entry]:
    for file in (_predecessor(path), path):
        try:
            lines = file.read_bytes().splitlines()
        except OSError:
            continue
        for line in lines:
            try:
                yield msgspec.json.decode(line, type=Entry)
            except msgspec.DecodeError:
                continue  # cut short by a power cut
