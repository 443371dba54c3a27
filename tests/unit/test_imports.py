"""No module of the package imports itself by way of others: each can be read, and tested, after those it uses."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import swell
from swell.core import events
from swell.sdk import carry, leaving

ROOT = Path(swell.__file__).parent


def _modules() -> dict[str, ast.Module]:
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = ("swell", *path.relative_to(ROOT).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    """When the module is imported: not inside functions, nor for type checkers only. `from a import b` is both a and
    a.b, since a package's own file is run first."""
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            yield statement.module
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)


def _in_cycles(imports: Mapping[str, set[str]]) -> set[str]:
    """Modules that are left when those that import nothing that is left are taken away, and those nobody imports."""
    left = {module: set(used) for module, used in imports.items()}
    while True:
        importers = {used for uses in left.values() for used in uses}
        done = {module for module, uses in left.items() if not uses or module not in importers}
        if not done:
            return set(left)
        left = {module: uses - done for module, uses in left.items() if module not in done}


def test_cycles_are_found() -> None:
    assert _in_cycles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == {"b", "c"}
    assert _in_cycles({"a": {"b"}, "b": {"c"}, "c": set()}) == set()


def test_no_module_imports_itself_by_way_of_others() -> None:
    modules = _modules()
    found = {name: {used for used in _imported(tree) if used in modules} - {"swell"} for name, tree in modules.items()}
    assert len(found) > 200
    assert _in_cycles(found) == set()


def test_the_exit_code_of_a_stopped_training_is_one_number() -> None:
    """The library may not import the package, and what carries a training starts fast: each has its own copy."""
    assert events.EXIT_STOPPED == leaving.EXIT_STOPPED == carry.EXIT_STOPPED
