"""Note once which tests execute which line: `python -m benchmarks.mutants.collect unit/core contract`.

Without names every folder of quick tests is run, each in an instrumented copy of the tree, into out/lines. A test that
fails there (the notes cost time) is named; its lines count nonetheless, since the test has to pass without a mutant
before it kills one."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.mutants import child
from benchmarks.mutants.killing import QUICK, adopt_orphans, copied, end_orphans
from benchmarks.mutants.lines import LINES, TESTS
from benchmarks.mutants.making import ROOT

FUTURE = "from __future__ import annotations\n"
OUT = ROOT / "out" / "lines"


def folders() -> list[str]:
    """Of quick tests, as the command names them."""
    tests = ROOT / "tests"
    parts = [path for kind in ("unit", "integration") for path in (tests / kind).iterdir() if any(path.glob("test_*"))]
    others = [tests / kind for kind in ("property", "contract", "faults", "sim")]
    return sorted(str(path.relative_to(tests)) for path in (*parts, *others))


def instrument(tree: Path) -> None:
    """Has each module note lines, unless its process does already. Line numbers stay."""
    notes = tree / "notes"
    notes.mkdir()
    (notes / "current").write_bytes(bytes(4))
    (notes / "children").touch()
    (notes / "children").chmod(0o666)
    there = notes / "child.py"
    shutil.copy(child.__file__, there)
    start = f"exec(open({str(there)!r}).read(), {{'__name__': '__main__', '__file__': {str(there)!r}}})"
    for path in (tree / "src" / "swell").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(FUTURE, f"{FUTURE[:-1]}; __import__('sys').gettrace() or {start}\n", 1))


def collect(folder: str, out: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="lines-") as directory:
        tree = copied(Path(directory))
        tree.chmod(0o755)
        instrument(tree)
        options = ("-q", "-p", "no:cacheprovider", "-p", "benchmarks.mutants.plugin", "--timeout", "120")
        command = [sys.executable, "-m", "pytest", *options, "--tb=line", "-m", QUICK, f"tests/{folder}"]
        subprocess.run(command, cwd=tree, env={**os.environ, "PYTHONPATH": str(tree / "src")}, check=False)
        end_orphans()
        place = out / folder.replace("/", "-")
        place.mkdir(parents=True, exist_ok=True)
        for name in (LINES, TESTS):
            shutil.copy(tree / "notes" / name, place)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants.collect", description=__doc__)
    parser.add_argument("folders", nargs="*", help=f"of {', '.join(folders())}")
    adopt_orphans()
    for folder in parser.parse_args().folders or folders():
        collect(folder, OUT)


if __name__ == "__main__":
    main()
