"""Run the tests that execute a mutant's line, in a copy of the tree, until one fails."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import re
import shutil
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import psutil

from benchmarks.mutants import forking
from benchmarks.mutants.making import ROOT, Mutant

PR_SET_CHILD_SUBREAPER = 36
NO_END = "no end"
SUITES = ("slow", "perf", "chaos", "torch", "frameworks", "web", "ssh", "containers", "kubernetes")
QUICK = " and ".join(f"not {suite}" for suite in SUITES)


def killer(
    mutant: Mutant, tree: Path, tests: Sequence[str], limit_s: float, passed: Collection[str] = frozenset()
) -> str:
    """The test that fails with this mutant and passes without it; empty if none does. A hang counts as well, unless the
    tests hang without the mutant too (a slow machine). `passed`: tests that passed without any, not to be run again."""
    path = tree / mutant.path.relative_to(ROOT)
    left = list(tests)
    while left:
        try:
            _write(path, mutant.text())
            found = failing(tree, left, limit_s)
        finally:
            _write(path, mutant.path.read_text(encoding="utf-8"))
        if not found or _is_among(found, passed):
            return found
        if not failing(tree, left if found == NO_END else [found], limit_s):
            return found
        if found not in left:
            return ""
        print(f"{found} fails without any mutant: left out", flush=True)
        left = left[left.index(found) + 1 :]
    return ""


def passing(tree: Path, tests: Sequence[str], limit_s: float) -> set[str]:
    """Those of these tests, or files of tests, that pass as they are."""
    left = list(tests)
    while left and (found := failing(tree, left, limit_s)):
        print(f"{found} fails without any mutant", flush=True)
        if found == NO_END:
            return set()
        left = [test for test in left if not _is_among(found, [test])]
    return set(left)


def _is_among(test: str, named: Iterable[str]) -> bool:
    """As itself, or as one of a file or of a parametrised test."""
    return any(test == name or test.startswith((f"{name}::", f"{name}[")) for name in named)


def failing(tree: Path, tests: Sequence[str], limit_s: float) -> str:
    """The first of these tests that fails, or that they do not end in time."""
    output = tree / "output"
    try:
        code = forking.run(tree, ["-x", "-rfE", "-m", QUICK, *tests], output, limit_s)
    finally:
        end_orphans()
    if code is None:
        return NO_END
    text = output.read_text(encoding="utf-8", errors="replace")
    named = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE)
    if code and not named:
        raise RuntimeError(f"pytest ended with {code} and names no test: {text[-2000:]}")
    return named[0] if named else ""


def adopt_orphans() -> None:
    """From now on what a test leaves behind becomes a child of this process."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans() -> None:
    """A mutant may keep a daemon, or a shim that spins, from ending."""
    left = psutil.Process().children(recursive=True)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=10)


def _write(path: Path, text: str) -> None:
    """With no compiled file of what was there before: two versions of one second and one length look alike."""
    path.write_text(text, encoding="utf-8")
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def copied(directory: Path) -> Path:
    for name in ("src", "tests", "benchmarks", "examples", "docs", "scripts", "web", "deploy"):
        ignored = shutil.ignore_patterns("__pycache__", "node_modules")
        shutil.copytree(ROOT / name, directory / name, ignore=ignored)
    for path in (*ROOT.glob("*.toml"), *ROOT.glob("*.md"), ROOT / "Makefile"):
        shutil.copy(path, directory)
    return directory
