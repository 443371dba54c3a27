"""What `make bench-policies` judges: bars as data, and what was not measured is never called good."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.policies import required
from benchmarks.policies.required import PARTS, Measured, Scope, judgement, page
from benchmarks.policies.runs import FIXED_TOLD, Bench
from benchmarks.small_clusters import best_of, compare

BARS = {"a": {"most": 1.0, "what": "one"}, "b": {"least": 0.75, "most": 0.9, "what": "two"}}


def test_a_figure_holds_is_missed_or_was_not_measured() -> None:
    assert judgement({"a": 1.0}, BARS)[2:] == ["| one | ≤ 1 | 1 | holds |", "| two | 0.75 to 0.9 |  | not measured |"]
    assert judgement({"a": 1.01, "b": 0.95}, BARS)[2:] == [
        "| one | ≤ 1 | 1.01 | **missed** |",
        "| two | 0.75 to 0.9 | 0.95 | **missed** |",
    ]


def test_every_bar_says_what_it_is_about() -> None:
    bars = json.loads(Path(required.__file__).with_name("required.json").read_text(encoding="utf-8"))
    assert all(bar["what"] and ("most" in bar or "least" in bar) for bar in bars.values())


def test_ours_is_compared_with_the_better_of_the_others_on_each_workload() -> None:
    def figures(mean_s: float, makespan_s: float) -> dict[str, float]:
        return {"mean_jct_s": mean_s, "makespan_s": makespan_s, "gpu_hours_per_job": 1.0}

    ours = {1: figures(90.0, 10.0), 2: figures(110.0, 10.0)}
    others = {
        "x": {1: figures(100.0, 10.0), 2: figures(200.0, 5.0)},
        "y": {1: figures(300.0, 1.0), 2: figures(100.0, 10.0)},
    }
    found = compare(ours, best_of(others))
    assert (found.mean, found.behind, found.worst, found.makespan) == (1.0, 1, 1.1, 1.0)


def test_makespans_are_judged_by_the_shortest_of_the_elastic_policies(tmp_path: Path) -> None:
    results = tmp_path / "results"
    for number in (1, 2):
        path = tmp_path / "data" / "pollux" / "workloads" / f"workload-{number}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    bench = Bench(tmp_path / "data", results, kept=True)
    for policy, makespan_s in (("swell", 110.0), ("afs-l", 100.0), ("elastic-srjf", 120.0), ("sia", 200.0)):
        for name in bench.pollux(policy, FIXED_TOLD):
            kept = {"mean_jct_s": 10.0, "p99_jct_s": 20.0, "makespan_s": makespan_s, "gpu_hours_per_job": 1.0}
            kept |= {"restarts_per_job": 1.0, "worst_rho": 1.0, "rho_above_1": 0.0}
            (results / f"{name}.json").write_text(json.dumps(kept))
    measured = Measured(bench, results, Scope(), kept=True)
    text = page(measured, PARTS, tmp_path / "frontier.svg")
    assert measured.figures["pollux.fixed-batch-told.makespan"] == 1.1
    assert "| Pollux, fixed, told: makespan over the best elastic policy's | ≤ 1.03 | 1.1 | **missed** |" in text
    assert "| Sia, adaptive, told: mean s | ≤ 1376 |  | not measured |" in text
