"""Which line of a log says why its program failed. Pure; the shim calls it with the end of the log.

The exception of a Python traceback says it; what comes after one may be anything (a launcher's summary, a warning, the
rest of a long message). torchrun starts several ranks and writes its own traceback after theirs: its summary names the
rank that failed first, and that rank's exception is the cause. Without a traceback it is the last line.
"""

from __future__ import annotations

import re
from typing import NamedTuple

FAR = 30
"""A traceback with more lines after it was most likely caught and logged long before the end."""
MAX_CAUSE = 300

_RANK = re.compile(r"\[rank(\d+)\]: ?")
_TRACEBACK = "Traceback (most recent call last):"
_ROOT = re.compile(r"Root Cause \(first observed failure\):.*?^\s*rank\s*: (\d+)", re.DOTALL | re.MULTILINE)
_OF_LAUNCHERS = ("torch.distributed.elastic.",)


class _Raised(NamedTuple):
    rank: int | None
    text: str
    after: int  # lines of the log that follow


def cause_of(text: str) -> str:
    """The line of `text`, the end of a log, that says best why its program failed; empty if there is none."""
    lines = text.split("\n")
    raised = [found for found in _exceptions(lines) if not found.text.startswith(_OF_LAUNCHERS)]
    root = _ROOT.search(text)
    if root is not None:
        rank = int(root[1])
        theirs = [found for found in raised if found.rank == rank]
        found = theirs[-1] if theirs else raised[-1] if raised else None
        return f"rank {rank}: {found.text}"[:MAX_CAUSE] if found else f"rank {rank} failed; its log has no traceback"
    if raised and raised[-1].after <= FAR:
        return raised[-1].text[:MAX_CAUSE]
    return next((line.strip() for line in reversed(lines) if line.strip()), "")[:MAX_CAUSE]


def _exceptions(lines: list[str]) -> list[_Raised]:
    """The exception at the end of each traceback, in order. Ranks may write at the same time: each has its prefix."""
    found = []
    for index, line in enumerate(lines):
        prefix = _prefix(line)
        if not line[len(prefix) :].startswith(_TRACEBACK):
            continue
        for end in range(index + 1, len(lines)):
            rest = lines[end][len(prefix) :]
            if lines[end].startswith(prefix) and rest and not rest[0].isspace() and not _RANK.match(rest):
                rank = _RANK.match(prefix)
                after = sum(1 for later in lines[end + 1 :] if later.strip())
                found.append(_Raised(int(rank[1]) if rank else None, rest.strip(), after))
                break
    return found


def _prefix(line: str) -> str:
    rank = _RANK.match(line)
    return rank[0] if rank else ""
