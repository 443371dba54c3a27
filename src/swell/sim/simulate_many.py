"""Many simulations side by side, and the files they write: summary.json, jobs.csv, held.csv and
comparison.json. `cli.sim` calls it.

Files are the same byte for byte for the same cases, whatever the number of processes and PYTHONHASHSEED; only `wall_s`
and `cpu_s` of each simulation depend on the machine.
"""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, fields
from pathlib import Path

from swell.core.errors import SwellError
from swell.sim.comparison import compared, encoded
from swell.sim.metrics import JobRow
from swell.sim.simulate import Case, Outcome, simulate

SUMMARY = "summary.json"
COMPARISON = "comparison.json"
"""What `swell sim report` draws."""
Done = Callable[[Outcome], None]


def run_cases(cases: Sequence[Case], processes: int = 0, done: Done = lambda _: None) -> list[Outcome]:
    """Outcomes in the order of the cases. `done` is called as each ends."""
    processes = min(processes or os.cpu_count() or 1, len(cases))
    if processes <= 1:
        return [_one(case, done) for case in cases]
    outcomes: dict[int, Outcome] = {}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        futures = {pool.submit(simulate, case): i for i, case in enumerate(cases)}
        for future in as_completed(futures):
            outcomes[futures[future]] = future.result()
            done(future.result())
    return [outcomes[i] for i in range(len(cases))]


def _one(case: Case, done: Done) -> Outcome:
    outcome = simulate(case)
    done(outcome)
    return outcome


def write(outcomes: Sequence[Outcome], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    summaries = [dict(outcome.summary) for outcome in outcomes]
    (directory / SUMMARY).write_text(json.dumps(summaries, indent=2) + "\n", encoding="utf-8")
    with (directory / "jobs.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([f.name for f in fields(JobRow)])
        for outcome in outcomes:
            writer.writerows([_cell(value) for value in asdict(row).values()] for row in outcome.rows)
    with (directory / "held.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["workload", "policy", "cluster_gpus", "at_s", "job", "gpus"])
        for outcome in outcomes:
            name, policy = outcome.name, outcome.case.policy
            writer.writerows([name, policy, outcome.gpus, _cell(at_s), job, n] for at_s, job, n in outcome.held)

    (directory / COMPARISON).write_bytes(encoded(compared(outcomes)))


def _cell(value: object) -> object:
    return f"{value:.3f}" if isinstance(value, float) else value


def read_summary(directory: Path) -> list[dict[str, object]]:
    """Raises `SwellError` where no results are."""
    if not (directory / SUMMARY).is_file():
        raise SwellError(f"{directory} has no {SUMMARY}; `swell sim run --out {directory} …` writes it")
    summaries: list[dict[str, object]] = json.loads((directory / SUMMARY).read_text(encoding="utf-8"))
    return summaries
