"""Policies compared on the same jobs: in the dashboard, and in a page that is mailed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from click.testing import CliRunner

from harness import Daemon
from swell.cli.sim import sim
from web.conftest import WIDE, Visit


def test_a_generated_workload_side_by_side(busy: Daemon, visit: Visit) -> None:
    visit.expected.append("willReadFrequently")  # the test reads pixels
    page = visit.log_in(busy, "/simulate")
    page.get_by_label("Jobs", exact=True).fill("20")
    page.get_by_label("fifo", exact=True).check()
    page.get_by_role("button", name="Simulate", exact=True).click()
    found = page.get_by_test_id("comparison")
    found.wait_for(timeout=90_000)
    figures = found.get_by_role("region", name="Figures")
    for policy in ("elastic-fifo", "fifo"):
        figures.get_by_role("columnheader", name=policy, exact=True).wait_for()
        assert drawn(page, policy) > 1000
    figures.get_by_role("rowheader", name="Makespan").wait_for()
    _played(page)
    assert found.get_by_role("region", name="Jobs").get_by_role("row").count() == 21


def _played(page: Any) -> None:
    """Back at the beginning nothing is drawn; it comes as it is played."""
    page.get_by_label("Time shown").fill("0")
    page.wait_for_timeout(200)
    assert drawn(page, "fifo") < 1000
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("() => document.querySelector('input[type=range]').valueAsNumber > 0")
    page.get_by_role("button", name="Pause").click()


def drawn(page: Any, policy: str) -> int:
    """Pixels of jobs on the lanes of a policy."""
    return int(
        page.locator(f"[data-policy='{policy}'] canvas").evaluate(
            """canvas => {
              const from = Math.round(84 * canvas.width / canvas.clientWidth);
              const data = canvas.getContext('2d').getImageData(0, from, canvas.width, canvas.height - from).data;
              let n = 0;
              for (let i = 0; i < data.length; i += 4)
                if (Math.max(data[i], data[i+1], data[i+2]) - Math.min(data[i], data[i+1], data[i+2]) > 40) n++;
              return n;
            }"""
        )
    )


def test_the_present_queue_and_what_is_wrong_with_a_file(busy: Daemon, visit: Visit, tmp_path: Path) -> None:
    visit.expected.append("422")
    page = visit.log_in(busy, "/simulate")
    page.get_by_role("button", name="The present queue").click()
    page.get_by_role("button", name="Simulate", exact=True).click()
    page.get_by_text("the present queue").first.wait_for(timeout=90_000)
    page.get_by_role("cell", name="unet-3d").or_(page.get_by_role("rowheader", name="unet-3d")).first.wait_for()
    page.get_by_role("button", name="A file").click()
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("- {command: python train.py, gpus: many}\n")
    page.get_by_label("File").set_input_files(wrong)
    page.get_by_role("button", name="Simulate", exact=True).click()
    page.get_by_test_id("simulate-wrong").filter(has_text="gpus").wait_for(timeout=60_000)


def test_a_report_is_one_file_that_works_alone(visit: Visit, tmp_path: Path) -> None:
    file, out = tmp_path / "w.yaml", tmp_path / "out"
    for arguments in (
        ["generate", "--jobs", "30", "--gpus", "16", "--hours", "2", "--seed", "4", "--out", str(file)],
        ["run", "--workload", str(file), "--cluster", "2x8", "--policy", "swell,fifo", "--processes", "1"],
        ["report", str(out)],
    ):
        more = ["--out", str(out)] if arguments[0] == "run" else []
        done = CliRunner().invoke(sim, [*arguments, *more])
        assert done.exit_code == 0, done.output
    visit.expected.append("willReadFrequently")  # the test reads pixels
    asked: list[str] = []
    visit.page.on("request", lambda request: asked.append(request.url))
    visit.page.set_viewport_size(WIDE)
    visit.page.goto((out / "report.html").as_uri())
    visit.page.get_by_role("columnheader", name="swell", exact=True).first.wait_for()
    assert drawn(visit.page, "swell") > 1000
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert visit.axe() == []
