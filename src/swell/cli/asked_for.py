"""A file that a failed job asked for: is it here, and was it left out of the job's copy?"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_MISSING = re.compile(r"no such file|not found|cannot (open|find|access|stat)|does ?n[o']t exist", re.IGNORECASE)
_WORD = re.compile(r"""'([^']+)'|"([^"]+)"|([^\s'":,;()\[\]]+)""")


def left_out_note(job: Mapping[str, Any], kept: Mapping[str, Any]) -> str:
    """What to do about the file that `job` failed for, if it is in this directory and not in the job's snapshot; else
    nothing. `kept`: where its files are."""
    submitted = Path(kept["submitted"]) if kept["submitted"] else None
    if job["state"] != "failed" or submitted is None or not submitted.is_dir() or not _MISSING.search(job["message"]):
        return ""
    for words in _WORD.findall(job["message"]):
        name = os.path.normpath(next(filter(None, words)).removeprefix(f"{kept['directory']}/"))
        if name.startswith(("/", "..")) or name == "." or not os.path.lexists(name):
            continue
        if not os.path.lexists(submitted / name):
            return (
                f"{name} is here, but was left out of the snapshot that the job ran in: add `--include {name}` "
                f"(include: [{name}] in a job file), write {Path.cwd() / name}, or run in place with --no-snapshot"
            )
    return ""
