"""How many small mistakes would the tests notice? Random single-line mutants, by a seed.

    python -m benchmarks.mutants policy speed --count 40 --seed 1

Each mutant changes one thing on one line (an operator, a constant, `and` to `or`, a `not` taken away, `min` to `max`,
a statement left out) in a copy of the tree, and the quick tests of its package run on that copy until one fails.
The test that kills a mutant has to pass without it. Survivors are printed with their line: each is equivalent, or a
test that is missing. Nothing in the tree itself is changed.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import io
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_PROPERTY, _CONTRACT, _API = "tests/property/test_", "tests/contract/test_", "tests/integration/api/test_"
TESTS: dict[str, tuple[str, ...]] = {
    "core": ("tests/unit/core", "tests/unit/plan", f"{_PROPERTY}cycle.py", f"{_PROPERTY}agreement.py",
             f"{_PROPERTY}one_accounting.py", f"{_PROPERTY}evolve.py"),
    "speed": ("tests/unit/speed", f"{_PROPERTY}speed_fits.py", f"{_PROPERTY}speed_book.py",
              f"{_PROPERTY}adaptive_speed.py"),
    "policy": ("tests/unit/policy", f"{_PROPERTY}swell_reference.py", f"{_PROPERTY}shortcuts.py",
               f"{_PROPERTY}policy_exact.py", f"{_PROPERTY}policy_contract.py"),
    "placement": ("tests/unit/placement", f"{_PROPERTY}placement.py", f"{_PROPERTY}placement_quality.py"),
    "plan": ("tests/unit/plan", f"{_PROPERTY}cycle.py"),
    "sim": ("tests/unit/sim", f"{_PROPERTY}cheapest_change.py"),
    "store": ("tests/unit/store", f"{_PROPERTY}codec.py", f"{_CONTRACT}store.py", f"{_CONTRACT}store_sqlite.py",
              f"{_CONTRACT}store_sql.py", f"{_CONTRACT}store_compaction.py"),
    "daemon": ("tests/unit/daemon", f"{_CONTRACT}store_compaction.py"),
    "executors": ("tests/unit/executors", f"{_CONTRACT}executor.py", f"{_CONTRACT}transport.py"),
    "jobfile": ("tests/unit/jobfile",),
    "api": ("tests/unit/api", f"{_API}jobs.py", f"{_API}cluster.py", f"{_API}access.py", f"{_API}guard.py",
            f"{_API}dashboard.py", f"{_API}streams.py", f"{_API}metrics.py", f"{_API}oidc.py"),
    "shim": ("tests/unit/shim", "tests/unit/executors", f"{_CONTRACT}executor.py", f"{_CONTRACT}transport.py"),
}  # fmt: skip
OPERATORS = {
    "+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "**": "*", "<": "<=", "<=": "<", ">": ">=", ">=": ">",
    "==": "!=", "!=": "==", "+=": "-=", "-=": "+=",
}  # fmt: skip
WORDS = {
    "and": "or",
    "or": "and",
    "min": "max",
    "max": "min",
    "True": "False",
    "False": "True",
    "not": "",
    "any": "all",
}
LIMIT_S = 400.0
NO_END = f"no end within {LIMIT_S:.0f} s"
SUITES = ("slow", "perf", "chaos", "torch", "frameworks", "web", "ssh", "containers", "kubernetes")
QUICK = " and ".join(f"not {suite}" for suite in SUITES)
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = FUNCTIONS | ast.If | ast.For | ast.While | ast.With | ast.AsyncWith | ast.Try


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    path: Path  # in the tree
    line: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}\n    - {self.before.strip()}\n    + {self.after.strip()}"


def mutants_of(path: Path) -> Iterator[Mutant]:
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    code = _code_lines(ast.parse(text))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        number, column = token.start
        if number not in code or token.end[0] != number:
            continue
        line = lines[number - 1]
        for new in _instead(token, line):
            yield Mutant(path=path, line=number, before=line, after=line[:column] + new + line[token.end[1] :])
    for number in _statements(ast.parse(text)):
        line = lines[number - 1]
        indent = line[: len(line) - len(line.lstrip())]
        yield Mutant(path=path, line=number, before=line, after=f"{indent}pass")


def _instead(token: tokenize.TokenInfo, line: str) -> Iterator[str]:
    if token.type == tokenize.OP and token.string in OPERATORS and not line.lstrip().startswith("*"):
        yield OPERATORS[token.string]
    elif token.type == tokenize.NAME and token.string in WORDS:
        yield WORDS[token.string]
    elif token.type == tokenize.NUMBER and token.string.replace(".", "", 1).isdigit():
        yield "1" if float(token.string) == 0 else f"({token.string} + 1)"


def _code_lines(tree: ast.Module) -> set[int]:
    """Lines inside functions, without docstrings and signatures."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            for statement in node.body:
                if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                    found.update(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    return found


def _statements(tree: ast.Module) -> Iterator[int]:
    """Lines with one statement that could be left out."""
    for node in ast.walk(tree):
        for statement in getattr(node, "body", []) if isinstance(node, BLOCKS) else []:
            call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call | ast.Await)
            if (call or isinstance(statement, ast.AugAssign)) and statement.lineno == statement.end_lineno:
                yield statement.lineno


def by_nearness(tests: Sequence[str], tree: Path, path: Path) -> tuple[list[str], list[str]]:
    """Files of tests: those that name the mutant's module, which fail soonest, and the others."""
    module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    parent, _, name = module.rpartition(".")
    files = [file for test in tests for file in ([tree / test] if test.endswith(".py") else _test_files(tree / test))]
    words = (module, f"from {parent} import {name}")
    near: list[str] = []
    far: list[str] = []
    for file in dict.fromkeys(files):
        naming = any(word in file.read_text(encoding="utf-8") for word in words)
        (near if naming else far).append(str(file.relative_to(tree)))
    return near, far


def _test_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("test_*.py"))


def killer(mutant: Mutant, tree: Path, tests: Sequence[str], *, near_only: bool) -> str:
    """The test that fails with this mutant and passes without it; empty if none does. A hang counts as well, unless the
    tests hang without the mutant too (a slow machine)."""
    path = tree / mutant.path.relative_to(ROOT)
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    lines[mutant.line - 1] = mutant.after + "\n"
    near, far = by_nearness(tests, tree, mutant.path)
    if not _compiles("".join(lines)):
        return "the compiler"
    try:
        _write(path, "".join(lines))
        found = failing(tree, near) or ("" if near_only else failing(tree, far))
    finally:
        _write(path, text)
    if found == NO_END and failing(tree, near if near_only else [*near, *far]):
        return ""
    if found.startswith("tests/") and failing(tree, [found]):
        raise SystemExit(f"{found} fails without any mutant")
    return found


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def failing(tree: Path, tests: Sequence[str]) -> str:
    """The first of these tests that fails, or how else pytest ended."""
    if not tests:
        return ""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", QUICK, *tests]
    environment = {**os.environ, "SWELL_EXAMPLES": "100", "PYTHONPATH": str(tree / "src")}
    try:
        ran = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, timeout=LIMIT_S, check=False, text=True
        )
    except subprocess.TimeoutExpired:
        return NO_END
    named = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", ran.stdout, re.MULTILINE)
    return "" if ran.returncode == 0 else named[0] if named else f"pytest ended with {ran.returncode}"


def _write(path: Path, text: str) -> None:
    """With no compiled file of what was there before: two versions of one second and one length look alike."""
    path.write_text(text, encoding="utf-8")
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def sample(packages: Sequence[str], count: int, seed: int) -> list[tuple[str, Mutant]]:
    """As many of each package, lines drawn evenly over all mutants that there are."""
    dice = random.Random(seed)
    chosen: list[tuple[str, Mutant]] = []
    for package in packages:
        paths = sorted((ROOT / "src" / "swell" / package).rglob("*.py"))
        found = [mutant for path in paths for mutant in mutants_of(path)]
        chosen += [(package, mutant) for mutant in dice.sample(found, min(count // len(packages), len(found)))]
    return chosen


def copied(directory: Path) -> Path:
    for name in ("src", "tests", "benchmarks", "examples", "docs", "scripts", "web", "deploy"):
        ignored = shutil.ignore_patterns("__pycache__", "node_modules")
        shutil.copytree(ROOT / name, directory / name, ignore=ignored)
    for path in (*ROOT.glob("*.toml"), *ROOT.glob("*.md"), ROOT / "Makefile"):
        shutil.copy(path, directory)
    return directory


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("packages", nargs="+", choices=sorted(TESTS))
    parser.add_argument("--count", type=int, default=40, help="over all packages")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--near", action="store_true", help="only tests that name the mutant's module")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        tree = copied(Path(directory))
        survivors = 0
        chosen = sample(asked.packages, asked.count, asked.seed)
        for number, (package, mutant) in enumerate(chosen, start=1):
            by = killer(mutant, tree, TESTS[package], near_only=asked.near)
            survivors += not by
            print(f"{number}/{len(chosen)} {f'killed by {by}:' if by else 'SURVIVED'} {mutant}", flush=True)
        print(f"{len(chosen) - survivors} of {len(chosen)} killed")


if __name__ == "__main__":
    main()
