"""Problems of a job file as values: where, what, and how to fix it. Everything that reads job files raises them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from swell.core.errors import SwellError

SHOWN = 10
"""Problems in the message; all of them are in `problems`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong. `path` names the field, as in `gpus.min` or `env.LR`; empty: the whole file."""

    path: str
    what: str
    fix: str = ""

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        return f"{where}{self.what}" + (f" ({self.fix})" if self.fix else "")


class JobFileError(SwellError):
    """A job file that cannot be taken as it is. All problems at once, not only the first."""

    def __init__(self, problems: Sequence[Problem], *, syntax: bool = False) -> None:
        self.problems = tuple(problems)
        self.syntax = syntax  # not even readable, as opposed to readable but wrong
        super().__init__("\n".join(_listed(self.problems)))


def _listed(problems: Sequence[Problem]) -> list[str]:
    """The first few, and the same remedy once: one wrong file, or a thousand jobs with one mistake, fill no screen."""
    more = len(problems) - SHOWN
    lines, given = [], set[str]()
    for problem in problems[:SHOWN]:
        lines.append(str(replace(problem, fix="") if problem.fix in given else problem))
        given.add(problem.fix)
    return [*lines, f"… and {more} more problems"] if more > 0 else lines


def prefixed(problems: Iterable[Problem], prefix: str) -> list[Problem]:
    return [Problem(path=f"{prefix}.{p.path}" if p.path else prefix, what=p.what, fix=p.fix) for p in problems]


def one(path: str, what: str, fix: str = "", *, syntax: bool = False) -> JobFileError:
    return JobFileError([Problem(path=path, what=what, fix=fix)], syntax=syntax)
