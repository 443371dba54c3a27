"""Tables and pictures of `make bench-tables`, from results as they are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.policies.pictures import POINTS, draw_all, thinned
from benchmarks.policies.runs import ADAPTIVE_LEARNING, FIXED_TOLD, Bench, Choice, used
from benchmarks.policies.tables import page

CHOICE = Choice(policies=("fifo", "swell"))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Four workloads, of which the first two policies were measured in two columns."""
    data = tmp_path / "data"
    for number in (1, 2, 3, 4):
        path = data / "pollux" / "workloads" / f"workload-{number}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    bench = Bench(data, tmp_path / "results", kept=True)
    for policy, seconds in (("fifo", 2000.0), ("swell", 1000.0)):
        for column in (FIXED_TOLD, ADAPTIVE_LEARNING):
            for name in bench.pollux(policy, column):
                (tmp_path / "results" / f"{name}.json").write_text(json.dumps(kept(seconds)))
    return bench


def kept(seconds: float) -> dict[str, object]:
    return {
        "jobs": 3,
        "mean_jct_s": seconds,
        "p99_jct_s": 3600.0,
        "restarts_per_job": 1.0,
        "gpu_hours_per_job": 2.0,
        "worst_rho": 1.5,
        "rho_above_1": 0.25,
        "events": 100,
        "passes": 10,
        "cpu_s": 0.5,
        "jct_each_s": [seconds - 1, seconds, seconds + 1],
        "rho_each": [0.5, 0.9, 1.5],
        "used": [0.5, 1.0, 0.2],
    }


def test_the_best_policy_comes_first_and_what_was_not_measured_is_left_out(bench: Bench) -> None:
    text = page(bench, ("best",), CHOICE)
    assert text.index("| swell | **1000**") < text.index("| fifo | **2000** | 2000 2000 2000 2000 |")
    assert text.count("| swell |") == 2
    assert "*Pollux, as published* | 2580 | 2089 3323 2188 2721 |" in text


def test_unseen_workloads_are_kept_apart_from_the_published_ones(bench: Bench, tmp_path: Path) -> None:
    assert "| swell |" not in page(bench, ("unseen",), CHOICE)
    for name, case in bench.pollux("swell", FIXED_TOLD, draw=1).items():
        assert case.draw == 1
        (tmp_path / "results" / f"{name}.json").write_text(json.dumps(kept(500.0)))
    assert "| swell | 500 (1.5, 25 %) |" in page(bench, ("unseen",), CHOICE)
    assert "| swell | 1000 (1.5, 25 %) |" in page(bench, ("overview",), CHOICE)


def test_pictures_are_drawn_of_what_there_is_and_the_same_again(bench: Bench, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = draw_all(bench, tmp_path, CHOICE)
    names = {path.name for path in drawn}
    assert names == {
        "policies-mean.svg",
        "policies-completion.svg",
        "policies-fairness.svg",
        "policies-gpus.svg",
        "policies-loads.svg",
    }
    before = {path: path.read_bytes() for path in drawn}
    draw_all(bench, tmp_path, CHOICE)
    assert all(path.read_bytes() == content for path, content in before.items())
    assert all(len(content) < 150_000 for content in before.values())


def test_utilisation_is_the_mean_of_each_five_minutes() -> None:
    held = [(0.0, 1, 4), (150.0, 2, 4), (450.0, 1, 0), (450.0, 2, 2), (600.0, 2, 0)]
    assert used(held, 8) == [0.75, 0.625]


def test_a_thinned_distribution_keeps_its_ends() -> None:
    values = [float(i) for i in range(640)]
    xs, ys = thinned(values)
    assert len(xs) <= POINTS + 1
    assert (xs[0], xs[-1], ys[-1]) == (0.0, 639.0, 1.0)
