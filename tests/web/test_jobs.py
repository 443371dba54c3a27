"""The list of jobs, with ten and with ten thousand, and what can be done from it."""

from __future__ import annotations

from pathlib import Path

from harness import Daemon, daemon, eventually
from web.conftest import Visit, make_home, training

MANY = 10_000


def test_jobs_are_filtered_searched_and_sorted(busy: Daemon, visit: Visit) -> None:
    page = visit.log_in(busy, "/jobs")
    rows = page.locator(".body .row")
    page.get_by_role("button", name="Failed").click()
    eventually(lambda: rows.count() == 1, 5)
    assert "typo" in rows.inner_text()
    page.get_by_role("button", name="All").click()
    page.get_by_label("Search jobs").fill("ada vit")
    eventually(lambda: rows.count() == 1, 5)
    assert "vit-large" in rows.inner_text()
    page.get_by_label("Search jobs").fill("")
    page.get_by_role("columnheader", name="Name").get_by_role("button").click()
    eventually(lambda: "bert-base" in rows.first.inner_text(), 5)
    page.get_by_label("Search jobs").fill("no such job")
    page.get_by_text("No job matches").wait_for()


def test_several_jobs_are_paused_resumed_given_priority_and_cancelled(fresh: Daemon, visit: Visit) -> None:
    ids = [fresh.submit(**training(f"t{n}", 300, 1, 1, 2.0, n))[0] for n in range(3)]
    page = visit.log_in(fresh, "/jobs")
    for job in ids:
        page.get_by_label(f"Select job {job}", exact=True).check()
    actions = page.get_by_role("toolbar", name="Actions on selected jobs")
    actions.get_by_role("button", name="Pause").click()
    eventually(lambda: all(fresh.get(f"/v1/jobs/{job}")["paused"] for job in ids), 10)
    page.locator(f"[data-job='{ids[0]}']").locator(".state.paused").wait_for(timeout=20_000)
    actions.get_by_role("button", name="Resume").click()
    eventually(lambda: not any(fresh.get(f"/v1/jobs/{job}")["paused"] for job in ids), 10)
    actions.get_by_label("Priority").select_option("high")
    eventually(lambda: all(fresh.get(f"/v1/jobs/{job}")["priority"] == 10 for job in ids), 10)
    actions.get_by_role("button", name="Cancel").click()
    page.get_by_text("3 jobs cancelled").wait_for()
    for job in ids:
        page.locator(f"[data-job='{job}']").locator(".state.cancelled").wait_for(timeout=20_000)


def test_ten_thousand_jobs_are_scrolled(tmp_path: Path, visit: Visit) -> None:
    with daemon(make_home(tmp_path / "home"), gpus=1, args=("--policy", "fifo")) as made:
        for _ in range(MANY // 1000):
            made.post(
                "/v1/jobs", {"name": "sweep", "command": "true", "gpus": 0, "cpus": 0, "array": 1000, "depends_on": []}
            )
            made.post("/v1/jobs/cancel", {"all": True})
        page = visit.log_in(made, "/jobs")
        body = page.get_by_test_id("rows")
        eventually(lambda: f"{MANY:,}" in page.locator(".bulk").inner_text(), 60, what="all rows have come")
        assert page.locator(".body .row").count() < 100, "only what can be seen is made"
        seen = set()
        for share in (0.1, 0.5, 0.9, 1.0):
            body.evaluate("(area, share) => { area.scrollTop = share * area.scrollHeight }", share)
            page.wait_for_timeout(100)
            seen.add(page.locator(".body .row").last.get_attribute("data-job"))
        assert len(seen) == 4
        assert "1" in seen, "the oldest is at the end"
        page.get_by_label("Search jobs").fill("sweep-77 ")
        eventually(lambda: 0 < page.locator(".body .row").count() < 60, 10)
        page.close()  # before its daemon ends
