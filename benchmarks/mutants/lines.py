"""Which tests execute a line, quickest first, from what `collect` left in out/lines."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import coverage

LINES, TESTS = "lines.coverage", "tests.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """Of one folder of tests."""

    seconds: Mapping[str, float]  # of each test
    lines: coverage.CoverageData

    def executing(self, path: str, lines: Iterable[int]) -> set[str]:
        """A context is a test, or a module of tests (its fixtures), or empty (imports)."""
        by_line = self.lines.contexts_by_lineno(path)
        names = {name for line in lines for name in by_line.get(line, [])}
        tests = names & self.seconds.keys()
        modules = tuple(f"{name}::" for name in names - tests if name)
        if not tests and not modules and names:  # only imports: every test sees what they made
            return set(self.seconds)
        return tests | {test for test in self.seconds if test.startswith(modules)}


def collected(folder: Path) -> list[Collected]:
    found = []
    for place in sorted(folder.iterdir()):
        data = coverage.CoverageData(str(place / LINES))
        data.read()
        found.append(Collected(seconds=json.loads((place / TESTS).read_text(encoding="utf-8")), lines=data))
    return found


def executing(maps: Sequence[Collected], path: Path, line: int, root: Path) -> list[tuple[str, float]]:
    """Those of the line itself; if it has none (a constant of a longer statement), those of its statement."""
    name = str(path.relative_to(root))
    for lines in ([line], statement_lines(path.read_text(encoding="utf-8"), line)):
        found = {test: one.seconds[test] for one in maps for test in one.executing(name, lines)}
        if found:
            return quickest_first(found)
    return []


def quickest_first(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    """The tests of a file stay together: a fixture of a module is then made once."""
    files: dict[str, list[tuple[str, float]]] = {}
    for test, took_s in seconds.items():
        files.setdefault(test.partition("::")[0], []).append((test, took_s))
    by_time = sorted(files.values(), key=lambda tests: sum(took_s for _, took_s in tests))
    return [one for tests in by_time for one in sorted(tests, key=lambda test: test[1])]


def statement_lines(text: str, line: int) -> range:
    """Of the innermost statement around the line, of a compound one its head only."""
    around = [span for span in _spans(ast.parse(text)) if line in span]
    return min(around, key=len, default=range(line, line + 1))


def _spans(tree: ast.Module) -> Iterator[range]:
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            yield range(node.lineno, max(last, node.lineno) + 1)
