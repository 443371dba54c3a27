"""`make bench-tables`: every policy on the public workloads, as tables and pictures in docs/figures.

Each simulation is kept as a small JSON file, so that a run that was cut short goes on where it was, a single policy can
be measured again (`--again swell`), and tables can be made of what there is (`--kept`).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.policies.pictures import draw_all
from benchmarks.policies.runs import COLUMNS, Bench, Choice
from benchmarks.policies.tables import SECTIONS, page
from swell.policy.registry import POLICIES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policies", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory with pollux/, sia/ and philly/")
    parser.add_argument("--results", type=Path, default=Path("out/bench-policies"))
    parser.add_argument("--out", type=Path, default=Path("docs/figures/simulator-tables.md"))
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--parts", default=",".join(SECTIONS))
    parser.add_argument("--policies", default=",".join(POLICIES), help="only these")
    parser.add_argument("--columns", default="", help="only those with this in their title: told, learning, …")
    parser.add_argument("--again", default="", help="policies to measure again")
    parser.add_argument("--kept", action="store_true", help="simulate nothing: tables and pictures of what there is")
    said = parser.parse_args()
    again = filter(None, said.again.split(","))
    bench = Bench(said.data, said.results, processes=said.processes, again=again, kept=said.kept)
    choice = Choice(
        policies=said.policies.split(","), columns=[column for column in COLUMNS if said.columns in column.title]
    )
    said.out.write_text(page(bench, said.parts.split(","), choice), encoding="utf-8")
    print(f"written: {said.out}")
    for picture in draw_all(Bench(said.data, said.results, kept=True), said.out.parent, choice):
        print(f"written: {picture}")


if __name__ == "__main__":
    main()
