"""ARCHITECTURE.md names files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import swell

PACKAGE = Path(swell.__file__).parent
PAGE = PACKAGE.parents[1] / "ARCHITECTURE.md"


def test_every_file_of_the_walk_is_there() -> None:
    walk = PAGE.read_text(encoding="utf-8").partition("## One job's life")[2]
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", walk)
    assert len(named) > 30
    assert [name for name in named if not (PACKAGE / name).is_file()] == []


def test_the_folders_and_files_of_the_package_are_described() -> None:
    tree = PAGE.read_text(encoding="utf-8").partition("src/swell/")[2].partition("```")[0]
    listed = set(re.findall(r"[\w/]+(?:\.py)?", tree))
    there = {path.name for path in PACKAGE.glob("[a-z]*.py")} | {
        path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()
    }
    assert len(there) > 20
    assert sorted(there - {name.strip("/") for name in listed}) == []


def test_every_proof_of_a_promise_is_there() -> None:
    promises = (PAGE.parent / "GUARANTEES.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:\w+/)+(?:\w+\.py(?:::\w+)?)?)`", promises)
    assert len(named) > 100
    assert [name for name in named if not _is_there(name)] == []


def _is_there(proof: str) -> bool:
    path, _, test = proof.partition("::")
    file = PAGE.parent / "tests" / path
    return file.exists() and (not test or f"def {test}(" in file.read_text(encoding="utf-8"))
