"""Which files of a directory are a finished checkpoint, and how far it is. Pure; runs on the machine that has them.

- What begins with a dot is being written, or is Swell's own: left out.
- The in-job library writes `checkpoint-EPOCHS-STEP.pkl` whole (beside, then renamed): only the newest one counts.
- It notes in `progress.json` which epochs the checkpoints of the training's own code cover. Alone it is no checkpoint.
- All other files count once none of them has changed for a while, or once nobody writes any more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import List, NamedTuple, Tuple

SETTLE_S = 3.0
"""Files that were not written whole count once they have not changed for so long."""
PROGRESS = "progress.json"
_OF_LIBRARY = re.compile(r"checkpoint-(\d+)-(\d+)\.pkl")
_OF_A_JOB = re.compile(r"[1-9][0-9]{0,11}")

Progress = Tuple[int, int]
"""(whole epochs, steps of the next one)."""


class Found(NamedTuple):
    """A plain file, by its path from the directory."""

    path: str
    size: int
    mtime_ns: int
    inode: int
    mode: int = 0o600


def visible(found: Iterable[Found], *, named: bool = False) -> List[Found]:
    """Without what is hidden. `named`: the directory is one that a user named and jobs may share: each job's own
    directory in it belongs to that job."""
    return sorted(file for file in found if not _is_hidden(file.path, named))


def _is_hidden(path: str, named: bool) -> bool:
    parts = path.split("/")
    of_another = named and len(parts) > 1 and _OF_A_JOB.fullmatch(parts[0]) is not None
    return of_another or any(part.startswith(".") for part in parts)


def finished(found: Iterable[Found], unchanged_s: float) -> List[Found] | None:
    """The files of the newest finished checkpoint, of visible ones. Empty: there is none. None: one may be being
    written. `unchanged_s`: for how long these files have been the same; infinite once nobody writes."""
    files = list(found)
    newest = max((file for file in files if _OF_LIBRARY.fullmatch(file.path)), key=_number, default=None)
    noted = [file for file in files if file.path == PROGRESS]
    others = [file for file in files if file.path != PROGRESS and not _OF_LIBRARY.fullmatch(file.path)]
    if others and unchanged_s < SETTLE_S:
        return None
    if newest is None and not others:
        return []
    return sorted([*([newest] if newest else []), *noted, *others])


def unsettled(found: Iterable[Found]) -> List[Found]:
    """Files that count only if they are unchanged at a later look."""
    return [file for file in found if file.path != PROGRESS and not _OF_LIBRARY.fullmatch(file.path)]


def _number(file: Found) -> Progress:
    match = _OF_LIBRARY.fullmatch(file.path)
    assert match is not None
    return int(match[1]), int(match[2])


def progress_of(found: Iterable[Found], noted: int | None) -> Progress | None:
    """How far a checkpoint of these files is; None: only the training knows. `noted`: epochs, by `progress.json`."""
    named = [_number(file) for file in found if _OF_LIBRARY.fullmatch(file.path)]
    return max(named) if named else None if noted is None else (noted, 0)
