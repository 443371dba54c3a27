"""Tests of a line that a person named, for a sample without the hours that `collect` takes (`--near FILE`).

Each line of the file is a path in the tree, or `path:line`, or `path:first-last`, then its tests in the order in which
they run: `src/swell/shim/pod.py:148 tests/integration/executors/test_pod_worker.py`. The narrowest line counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

EVERY_LINE = range(1, 1_000_000)

Named = Mapping[tuple[str, range], Sequence[str]]


def named(text: str) -> Named:
    found: dict[tuple[str, range], Sequence[str]] = {}
    for row in text.splitlines():
        where, *tests = row.partition("#")[0].split() or [""]
        if where:
            path, _, lines = where.partition(":")
            found[path, _lines(lines)] = tests
    return found


def near_tests(named: Named, path: Path, line: int, root: Path) -> list[tuple[str, float]]:
    """As `lines.executing` answers, with no seconds recorded."""
    name = str(path.relative_to(root))
    around = [(len(lines), tests) for (where, lines), tests in named.items() if where == name and line in lines]
    _, tests = min(around, key=lambda one: one[0], default=(0, ()))
    return [(test, 0.0) for test in tests]


def _lines(text: str) -> range:
    if not text:
        return EVERY_LINE
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)
