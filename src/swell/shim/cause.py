"""Which line of a log says why its program failed. Pure; the shim calls it with the end of the log.

The exception of a Python traceback says it; what comes after one may be anything (a launcher's summary, a warning, the
rest of a long message). torchrun starts several ranks and writes its own traceback after theirs: its summary names the
rank that failed first, and that rank's exception is the cause. Without a traceback it is the last line, or the first
one of a box at the end (mpirun's messages).
"""

from __future__ import annotations

import re
from typing import NamedTuple

FAR = 30
"""A traceback with more lines after it was most likely caught and logged long before the end."""
MAX_CAUSE = 300

_RANK = re.compile(r"\[rank(\d+)\]: ?")
_TRACEBACK = "Traceback (most recent call last):"
_ROOT = re.compile(
    r"Root Cause \(first observed failure\):.*?^\s*rank\s*: (\d+)(?:[^\n]*\n\s*exitcode\s*: (-?\d+))?",
    re.DOTALL | re.MULTILINE,
)
_SIGKILL = ("-9", "137")
"""Exit codes of a process that was killed, and of a shell whose child was: no traceback tells of it."""
_RULE = re.compile(r"\s*[-=*#_]{10,}\s*")
_OF_LAUNCHERS = ("torch.distributed.elastic.",)


class _Raised(NamedTuple):
    rank: int | None
    text: str
    after: int  # lines of the log that follow


def cause_of(text: str) -> str:
    """The line of `text`, the end of a log, that says best why its program failed; empty if there is none."""
    lines = text.replace("\r", "\n").split("\n")  # a progress bar writes over its line
    raised = [found for found in _exceptions(lines) if not found.text.startswith(_OF_LAUNCHERS)]
    root = _ROOT.search(text)
    if root is not None:
        rank = int(root[1])
        if root[2] in _SIGKILL:
            return f"rank {rank} was killed (SIGKILL)"
        theirs = [found for found in raised if found.rank == rank]
        found = theirs[-1] if theirs else raised[-1] if raised else None
        return f"rank {rank}: {found.text}"[:MAX_CAUSE] if found else f"rank {rank} failed; its log has no traceback"
    if raised and raised[-1].after <= FAR:
        return raised[-1].text[:MAX_CAUSE]
    return _last([line.strip() for line in lines if line.strip()])[:MAX_CAUSE]


def _last(lines: list[str]) -> str:
    """Of a log without a traceback."""
    rules = [number for number, line in enumerate(lines) if _RULE.fullmatch(line)]
    if len(rules) > 1 and rules[-1] == len(lines) - 1 and rules[-2] + 1 < rules[-1]:
        return lines[rules[-2] + 1]
    return next((line for number, line in reversed(list(enumerate(lines))) if number not in rules), "")


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
