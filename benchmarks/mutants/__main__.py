"""Run a sample of mutants of each package; see the package's own docstring."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.mutants.collect import OUT
from benchmarks.mutants.forking import import_libraries
from benchmarks.mutants.killing import adopt_orphans, copied, killer
from benchmarks.mutants.lines import Collected, collected, executing
from benchmarks.mutants.making import ROOT, Mutant, compiles, sample

PACKAGES = sorted(path.parent.name for path in (ROOT / "src" / "swell").glob("*/__init__.py"))
BUDGET_S = 150.0
"""Recorded seconds of tests that one mutant is given, unless `--budget` says otherwise."""
SLOWER = 4.0
"""How much slower than recorded a loaded machine may run tests before they count as hanging."""
START_S = 300.0
"""How long a loaded machine may take to start pytest: at low priority beside eight others, minutes."""


def verdict(mutant: Mutant, maps: Sequence[Collected], tree: Path, budget_s: float) -> tuple[str, str]:
    """In a word and in full: `invalid`, `killed` or `survived`."""
    if not compiles(mutant.text()):
        return "invalid", "does not compile"
    tests = executing(maps, mutant.path, mutant.line, ROOT)
    chosen: list[str] = []
    total_s = 0.0
    for test, took_s in tests:
        total_s += took_s
        if total_s > budget_s and chosen:
            break
        chosen.append(test)
    by = killer(mutant, tree, chosen, START_S + SLOWER * total_s)
    if by:
        return "killed", f"killed by {by}"
    return "survived", f"SURVIVED {len(chosen)} of {len(tests)} tests that execute it"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("packages", nargs="+", choices=PACKAGES)
    parser.add_argument("--count", type=int, default=17, help="per package")
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="recorded seconds of tests per mutant")
    parser.add_argument("--line", action="append", default=[], help="only this one, as path:line (again and again)")
    asked = parser.parse_args()
    maps = collected(OUT)
    import_libraries()
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        tree = copied(Path(directory))
        for package in asked.packages:
            counts: Counter[str] = Counter()
            for number, mutant in enumerate(sample(package, asked.count, asked.seed), start=1):
                if asked.line and f"{mutant.path.relative_to(ROOT)}:{mutant.line}" not in asked.line:
                    continue
                word, text = verdict(mutant, maps, tree, asked.budget)
                counts[word] += 1
                print(f"{number} {text}: {mutant}", flush=True)
            print(f"{package}: {dict(counts)}", flush=True)


if __name__ == "__main__":
    main()
