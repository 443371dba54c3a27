"""How many small mistakes would the tests notice? Random single-line mutants, by a seed.

    python -m benchmarks.mutants policy speed --count 40 --seed 1

Each mutant changes one thing on one line (an operator, a constant, `and` to `or`, a `not` taken away, `min` to `max`,
a statement left out) in a copy of the tree, and the quick tests of its package run on that copy until one fails.
Survivors are printed with their line: each is equivalent, or a test that is missing. Nothing in the tree itself is
changed.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import random
import shutil
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS: dict[str, tuple[str, ...]] = {
    "core": ("tests/unit/core", "tests/unit/plan", "tests/property/test_cycle.py"),
    "speed": ("tests/unit/speed", "tests/property/test_speed_fits.py", "tests/property/test_speed_book.py",
              "tests/property/test_adaptive_speed.py"),
    "policy": ("tests/unit/policy", "tests/property/test_swell_reference.py", "tests/property/test_shortcuts.py",
               "tests/property/test_policy_exact.py", "tests/property/test_policy_contract.py"),
    "placement": ("tests/unit/placement", "tests/property/test_placement.py"),
    "plan": ("tests/unit/plan", "tests/property/test_cycle.py"),
    "sim": ("tests/unit/sim",),
    "store": ("tests/contract/test_store.py", "tests/contract/test_store_sqlite.py"),
    "daemon": ("tests/unit/daemon",),
    "executors": ("tests/unit/executors",),
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
LIMIT_S = 300.0


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
        if isinstance(node, ast.FunctionDef):
            for statement in node.body:
                if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                    found.update(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    return found


def _statements(tree: ast.Module) -> Iterator[int]:
    """Lines with one statement that could be left out."""
    for node in ast.walk(tree):
        for statement in getattr(node, "body", []) if isinstance(node, ast.FunctionDef | ast.If | ast.For) else []:
            call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
            if (call or isinstance(statement, ast.AugAssign)) and statement.lineno == statement.end_lineno:
                yield statement.lineno


def killed(mutant: Mutant, tree: Path, tests: Sequence[str]) -> bool:
    """Does a test fail with this mutant? One that hangs is noticed too."""
    path = tree / mutant.path.relative_to(ROOT)
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    lines[mutant.line - 1] = mutant.after + "\n"
    path.write_text("".join(lines), encoding="utf-8")
    try:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        environment = {**os.environ, "SWELL_EXAMPLES": "60", "PYTHONDONTWRITEBYTECODE": "1"}
        ran = subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=LIMIT_S, check=False)
        return ran.returncode != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        path.write_text(text, encoding="utf-8")


def sample(packages: Sequence[str], count: int, seed: int) -> list[tuple[str, Mutant]]:
    """As many of each package, lines drawn evenly over all mutants that there are."""
    dice = random.Random(seed)
    chosen: list[tuple[str, Mutant]] = []
    for package in packages:
        paths = sorted((ROOT / "src" / "swell" / package).rglob("*.py"))
        found = [mutant for path in paths for mutant in mutants_of(path)]
        chosen += [(package, mutant) for mutant in dice.sample(found, min(count // len(packages), len(found)))]
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("packages", nargs="+", choices=sorted(TESTS))
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        tree = Path(directory)
        for name in ("src", "tests", "benchmarks", "examples", "docs", "scripts"):
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", tree)
        survivors = 0
        chosen = sample(asked.packages, asked.count, asked.seed)
        for number, (package, mutant) in enumerate(chosen, start=1):
            noticed = killed(mutant, tree, TESTS[package])
            survivors += not noticed
            print(f"{number}/{len(chosen)} {'killed' if noticed else 'SURVIVED'} {mutant}", flush=True)
        print(f"{len(chosen) - survivors} of {len(chosen)} killed")


if __name__ == "__main__":
    main()
