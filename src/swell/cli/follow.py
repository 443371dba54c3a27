"""Following a job's output to its end; `run` and `logs -f` both do."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import IO, Any

from swell.cli.tables import holds
from swell.cli.terminal import LogWriter, safe, say
from swell.client.http import Client, job_path

End = Mapping[str, Any]
ENDED = frozenset({"completed", "failed", "cancelled", "lost"})


class Lines:
    """Whole lines with the rank before each, so that processes that print at once stay readable."""

    def __init__(self, out: LogWriter) -> None:
        self._out = out
        self._parts: dict[str, str] = {}

    def write(self, data: Mapping[str, Any]) -> None:
        *whole, rest = (self._parts.get(data["rank"], "") + data["text"]).split("\n")
        self._parts[data["rank"]] = rest
        self._out.write("".join(f"[{data['rank']}] {line}\n" for line in whole))

    def end(self) -> None:
        self._out.write("".join(f"[{rank}] {rest}\n" for rank, rest in sorted(self._parts.items()) if rest))


def follow(
    client: Client,
    ref: str | int,
    *,
    rank: str = "0",
    attempt: int = 0,
    tail: int = 0,
    offset: int = 0,
    since: float = 0.0,
    out: IO[str] | None = None,
) -> End:
    """Print what the job prints, and on stderr what becomes of it; returns how it ended. Of what is there already, the
    last `tail` bytes, what is behind `offset` in that attempt, or what was printed `since` (seconds since 1970)."""
    target = LogWriter(out or sys.stdout)
    lines = Lines(target) if rank == "all" else None
    shown = ""
    begin: dict[str, float] = {"attempt": attempt, "offset": offset, "tail": tail, "since": since}
    for message in client.stream(job_path(ref, "logs"), until="end", follow=True, rank=rank, **begin):
        if message.event == "log":
            if lines:
                lines.write(message.data)
            else:
                target.write(message.data["text"])
            target.flush()
        elif message.event == "state" and (line := _state_line(message.data)) not in ("", shown):
            shown = line
            say(safe(line), err=True)
        elif message.event == "end":
            if lines:
                lines.end()
            return message.data
    raise AssertionError("a stream ends with its end, or with an error")


def _state_line(data: Mapping[str, Any]) -> str:
    """Empty once the job has ended: the last line, with the exit code, says so."""
    if data["state"] in ENDED:
        return ""
    where = holds(data)
    detail = where if data["state"] in ("running", "starting") else data["why"]
    return f"job {data['id']} {str(data['state']).upper()}" + (f"  {detail}" if detail else "")


def end_line(end: End) -> str:
    code = f"exit code {end['exit_code']}" if end["exit_code"] else ""
    return safe(f"job {end['id']} {str(end['state']).upper()}  {end['message'] or code}".rstrip())


def exit_code(end: End) -> int:
    return 0 if end["state"] == "completed" else 1
