"""A plugin of pytest that notes which lines of the package each test executes, in this process and in those it starts.

`collect` loads it (`-p benchmarks.mutants.plugin`) in an instrumented copy of the tree. What a fixture of a wider scope
executes belongs to its whole module: any test there may be the one that judges it."""

from __future__ import annotations

import json
import mmap
import struct
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import coverage
import pytest

from benchmarks.mutants.lines import LINES, TESTS

FOLDER = Path("notes")


class Noting:
    """The name in force is a context of coverage in this process, and a number in shared memory for the others."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names = [""]
        self._seconds: dict[str, float] = {}
        with (folder / "current").open("r+b") as file:
            self._current = mmap.mmap(file.fileno(), 4)
        self._coverage = coverage.Coverage(
            data_file=str(folder / LINES), source=["src/swell"], config_file=False, messages=False
        )
        self._coverage.set_option("run:relative_files", True)
        self._coverage.start()

    @contextmanager
    def named(self, name: str) -> Iterator[None]:
        before = self._names[self._number()]
        self._enter(name)
        try:
            yield
        finally:
            self._enter(before)

    @contextmanager
    def timed(self, test: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[test] = time.perf_counter() - began

    def end(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        data = self._coverage.get_data()
        for number, found in lines_of_children((self._folder / "children").read_text()).items():
            data.set_context(self._names[number])
            data.add_lines(found)
        self._coverage.save()
        (self._folder / TESTS).write_text(json.dumps(self._seconds, indent=0))

    def _number(self) -> int:
        return int(struct.unpack("I", self._current[:4])[0])

    def _enter(self, name: str) -> None:
        if name not in self._names:
            self._names.append(name)
        self._current[:4] = struct.pack("I", self._names.index(name))
        self._coverage.switch_context(name)


def lines_of_children(text: str) -> dict[int, dict[str, set[int]]]:
    """By the number of the test, then by file. The last line may have been cut off by a kill."""
    found: dict[int, dict[str, set[int]]] = {}
    for row in text.splitlines():
        test, _, rest = row.partition("\t")
        path, _, line = rest.partition("\t")
        if line:
            found.setdefault(int(test), {}).setdefault(path, set()).add(int(line))
    return found


noting = Noting(FOLDER) if FOLDER.is_dir() else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    assert noting is not None
    with noting.timed(item.nodeid), noting.named(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    assert noting is not None
    if fixturedef.scope == "function":
        return (yield)
    with noting.named(request.node.nodeid):
        return (yield)


def pytest_sessionfinish() -> None:
    assert noting is not None
    noting.end()
