"""Single-line mutants of the source: an operator, a constant, `and` to `or`, a `not` taken away, `min` to `max`, a
statement left out. Which of them are drawn is decided by a seed."""

from __future__ import annotations

import ast
import io
import random
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
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
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = FUNCTIONS | ast.If | ast.For | ast.While | ast.With | ast.AsyncWith | ast.Try


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    path: Path  # in the tree
    line: int
    before: str
    after: str

    def text(self) -> str:
        """The whole file with this change."""
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        lines[self.line - 1] = self.after + "\n"
        return "".join(lines)

    @property
    def place(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"

    def __str__(self) -> str:
        return f"{self.place}\n    - {self.before.strip()}\n    + {self.after.strip()}"


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


def compiles(text: str) -> bool:
    try:
        compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def sample(package: str, count: int, seed: int) -> list[Mutant]:
    """Lines drawn evenly over all mutants that there are; the same for a package whatever else is asked for."""
    paths = sorted((ROOT / "src" / "swell" / package).rglob("*.py"))
    found = [mutant for path in paths for mutant in mutants_of(path)]
    return random.Random(seed).sample(found, min(count, len(found)))
