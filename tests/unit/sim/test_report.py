from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from swell.cli.sim import names, parse_options, sim
from swell.core.errors import SwellError
from swell.sim.report import MARK, PICTURES, _read, page_of, pyplot, report

SUMMARY_KEYS = {
    "workload",
    "policy",
    "batch",
    "mean_jct_s",
    "median_jct_s",
    "p99_jct_s",
    "makespan_s",
    "restarts_per_job",
    "gpu_hours_per_job",
    "worst_rho",
    "wall_s",
}


@pytest.fixture
def results(ten_jobs: Path, profiles: Path, tmp_path: Path) -> Path:
    out = tmp_path / "out"
    arguments = ["run", "--workload", str(ten_jobs), "--profiles", str(profiles), "--cluster", "2x4"]
    arguments += ["--policy", "fifo,elastic-fifo", "--processes", "1", "--out", str(out)]
    done = CliRunner().invoke(sim, arguments)
    assert done.exit_code == 0, done.output
    assert "elastic-fifo" in done.output
    return out


def test_results_hold_a_summary_and_a_row_for_each_job(results: Path) -> None:
    summaries = json.loads((results / "summary.json").read_text())
    assert [figures["policy"] for figures in summaries] == ["fifo", "elastic-fifo"]
    assert all(set(figures) >= SUMMARY_KEYS for figures in summaries)
    with (results / "jobs.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 20


def test_compare_puts_the_best_first(results: Path) -> None:
    done = CliRunner().invoke(sim, ["compare", str(results)])
    assert done.exit_code == 0
    assert done.output.index("elastic-fifo") < done.output.index("fifo (fixed)") + len("elastic-")


def test_pictures_are_drawn_in_both_forms(results: Path) -> None:
    pytest.importorskip("matplotlib")
    done = CliRunner().invoke(sim, ["report", str(results), "--pictures"])
    assert done.exit_code == 0, done.output
    for name in ("completion", "gpus", "queue", "utilisation", "fairness", "restarts"):
        assert (results / f"{name}.svg").stat().st_size > 1000
        assert (results / f"{name}.png").stat().st_size > 1000


def test_every_picture_says_what_its_axis_and_its_lines_are(results: Path) -> None:
    pytest.importorskip("matplotlib")
    figure, axes = pyplot().subplots(len(PICTURES))
    found = _read(results)
    for picture, own in zip(PICTURES.values(), axes, strict=True):
        assert picture(own, found).endswith(".")
        assert own.get_xlabel()
    legends = [name for name, own in zip(PICTURES, axes, strict=True) if own.get_legend() is not None]
    assert legends == [name for name in PICTURES if name not in ("gpus", "restarts")], "which line is which"
    pyplot().close(figure)


def test_the_page_holds_all_results_and_asks_nobody_for_anything(results: Path, tmp_path: Path) -> None:
    template = tmp_path / "template.html"
    template.write_text(f"<!doctype html><body>{MARK}<script>1</script></body>")
    page = report(results, template).read_text()
    inside = page.partition('id="results">')[2].partition("</script>")[0]
    (comparison,) = json.loads(inside)
    assert [run["policy"] for run in comparison["runs"]] == ["fifo", "elastic-fifo"]
    assert sum(len(machine["gpus"]) for machine in comparison["machines"]) == 8
    for run in comparison["runs"]:
        assert len(run["jobs"]) == 10
        assert {span["job"] for span in run["spans"]} == {job["job"] for job in run["jobs"]}
        assert 0 < run["figures"]["utilisation"] <= 1


def test_the_name_of_a_job_never_ends_the_element_it_stands_in() -> None:
    page = page_of(f"<body>{MARK}</body>", json.dumps([{"name": "</script><script>alert(1)</script>"}]))
    inside = page.partition('id="results">')[2]
    assert json.loads(inside[: inside.index("</script>")]) == [{"name": "</script><script>alert(1)</script>"}]


def test_without_a_built_dashboard_the_page_is_refused_with_what_to_do(results: Path, tmp_path: Path) -> None:
    with pytest.raises(SwellError, match=r"make web.*--pictures"):
        report(results, tmp_path / "nothing.html")


def test_a_directory_without_results_says_what_writes_them(tmp_path: Path) -> None:
    done = CliRunner().invoke(sim, ["report", str(tmp_path)])
    assert "swell sim run --out" in str(done.exception)


def test_an_unknown_format_names_those_there_are(ten_jobs: Path, tmp_path: Path) -> None:
    arguments = ["run", "--workload", str(ten_jobs), "--format", "slurm", "--out", str(tmp_path)]
    done = CliRunner().invoke(sim, arguments)
    assert done.exit_code == 2
    assert "pollux, sia, jobs" in done.output


def test_generate_then_run(tmp_path: Path) -> None:
    file, out = tmp_path / "w.yaml", tmp_path / "out"
    made = CliRunner().invoke(sim, ["generate", "--jobs", "20", "--seed", "7", "--out", str(file)])
    assert made.exit_code == 0, made.output
    arguments = ["run", "--workload", str(file), "--cluster", "4x8", "--policy", "elastic-fifo", "--out", str(out)]
    done = CliRunner().invoke(sim, [*arguments, "--processes", "1"])
    assert done.exit_code == 0, done.output
    assert json.loads((out / "summary.json").read_text())[0]["jobs"] == 20


def test_workloads_of_one_name_are_told_apart_by_their_directory() -> None:
    assert names([Path("a/w.csv"), Path("b/w.csv"), Path("b/v.csv")]) == ["a/w", "b/w", "v"]


def test_options_are_numbers_flags_or_text() -> None:
    assert parse_options(["a=1", "b=0.5", "c=true", "d=x"]) == {"a": 1, "b": 0.5, "c": True, "d": "x"}


def test_an_option_that_nobody_has_is_a_mistake(ten_jobs: Path, tmp_path: Path) -> None:
    arguments = ["run", "--workload", str(ten_jobs), "--policy", "tiresias,fifo", "--out", str(tmp_path)]
    wrong = CliRunner().invoke(sim, [*arguments, "--option", "nob=3"])
    assert wrong.exit_code == 2
    assert "did you mean knob?" in wrong.output
    unlike = CliRunner().invoke(sim, [*arguments, "--option", "xyzzy=3"])
    assert "knob" in unlike.output
    assert "starvation_s" in unlike.output
