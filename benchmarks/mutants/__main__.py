"""Run a sample of mutants of each package; see the package's own docstring."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutants.collect import OUT
from benchmarks.mutants.forking import import_libraries
from benchmarks.mutants.killing import adopt_orphans, copied, killer, passing
from benchmarks.mutants.lines import collected, executing
from benchmarks.mutants.making import ROOT, Mutant, compiles, sample
from benchmarks.mutants.near import named, near_tests

PACKAGES = sorted(path.parent.name for path in (ROOT / "src" / "swell").glob("*/__init__.py"))
BUDGET_S = 150.0
"""Recorded seconds of tests that one mutant is given, unless `--budget` says otherwise."""
SLOWER = 4.0
"""How much slower than recorded a loaded machine may run tests before they count as hanging."""
START_S = 300.0
"""How long a loaded machine may take to start pytest: at low priority beside eight others, minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Runs the tests of one mutant after the other in a copy of the tree."""

    tree: Path
    tests_of: Callable[[Mutant], list[tuple[str, float]]]  # with their recorded seconds
    budget_s: float
    start_s: float
    passed: set[str]

    def verdict(self, mutant: Mutant) -> tuple[str, str]:
        """In a word and in full: `invalid`, `killed` or `survived`."""
        if not compiles(mutant.text()):
            return "invalid", "does not compile"
        tests = self.tests_of(mutant)
        if not tests:
            return "survived", "NOT RUN, no tests of it are known"
        chosen: list[str] = []
        total_s = 0.0
        for test, took_s in tests:
            total_s += took_s
            if total_s > self.budget_s and chosen:
                break
            chosen.append(test)
        by = killer(mutant, self.tree, chosen, self.start_s + SLOWER * total_s, self.passed)
        if by:
            return "killed", f"killed by {by}"
        return "survived", f"SURVIVED {len(chosen)} of {len(tests)} tests or files of tests"

    def judge(self, package: str, mutants: Sequence[tuple[int, Mutant]]) -> None:
        counts: Counter[str] = Counter()
        for number, mutant in mutants:
            word, text = self.verdict(mutant)
            counts[word] += 1
            print(f"{number} {text}: {mutant}", flush=True)
        print(f"{package}: {dict(counts)}", flush=True)


def tests_by(near: Path | None) -> Callable[[Mutant], list[tuple[str, float]]]:
    """Those that somebody named in a file, else those that `collect` has noted."""
    if near is not None:
        names = named(near.read_text(encoding="utf-8"))
        return lambda mutant: near_tests(names, mutant.path, mutant.line, ROOT)
    maps = collected(OUT)
    return lambda mutant: executing(maps, mutant.path, mutant.line, ROOT)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("packages", nargs="+", choices=PACKAGES)
    parser.add_argument("--count", type=int, default=17, help="per package")
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="recorded seconds of tests per mutant")
    parser.add_argument("--start", type=float, default=START_S, help="seconds beside those of the tests before a hang")
    parser.add_argument("--line", action="append", default=[], help="only this one, as path:line (again and again)")
    parser.add_argument("--near", type=Path, help="tests named by hand instead of notes: `near` says how")
    asked = parser.parse_args()
    drawn = {package: list(enumerate(sample(package, asked.count, asked.seed), start=1)) for package in asked.packages}
    for package, found in drawn.items():
        drawn[package] = [one for one in found if not asked.line or one[1].place in asked.line]
    tests_of = tests_by(asked.near)
    import_libraries()
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        tree = copied(Path(directory))
        # Named tests are few: once without any mutant is enough for all that they kill.
        all_of_them = {test: 0 for found in drawn.values() for _, mutant in found for test, _ in tests_of(mutant)}
        passed = passing(tree, list(all_of_them), 2 * asked.start) if asked.near else set()
        judge = Judge(tree=tree, tests_of=tests_of, budget_s=asked.budget, start_s=asked.start, passed=passed)
        for package, found in drawn.items():
            judge.judge(package, found)


if __name__ == "__main__":
    main()
