"""Submitting, looking ahead, and changing the policy."""

from __future__ import annotations

import re

from harness import Daemon, eventually
from web.conftest import Visit


def test_errors_are_shown_at_the_field_and_at_the_line(fresh: Daemon, visit: Visit) -> None:
    page = visit.log_in(fresh, "/submit")
    verdict = page.get_by_test_id("verdict")
    verdict.filter(has_text="could run on").wait_for()
    page.get_by_label("GPUs, at most").fill("0")
    page.get_by_label("GPUs, at least").fill("3")
    verdict.filter(has_text="Not yet right").wait_for()
    assert "line 3" in verdict.inner_text()
    field = page.get_by_label("GPUs, at least")
    eventually(lambda: field.get_attribute("aria-invalid") == "true", 5)
    page.get_by_test_id("editor").locator(".cm-lint-marker-error").wait_for()
    assert page.get_by_role("button", name="Submit").is_disabled()
    page.get_by_label("GPUs, at most").fill("99")
    page.get_by_label("GPUs, at least").fill("99")
    verdict.filter(has_text="could never run here").wait_for()


def test_a_job_is_written_checked_and_submitted(fresh: Daemon, visit: Visit) -> None:
    page = visit.log_in(fresh, "/submit")
    page.get_by_test_id("verdict").wait_for()
    editor = page.get_by_test_id("editor").locator(".cm-content")
    editor.click()
    page.keyboard.press("Control+a")
    page.keyboard.type("name: typed\ncommand: echo hello from the page\ngpus: 0\ncpus: 0\n")
    page.get_by_test_id("verdict").filter(has_text="typed").wait_for()
    assert page.get_by_label("Name").input_value() == "typed"
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url("**/jobs/1")
    page.get_by_test_id("log").get_by_text("hello from the page").wait_for()


def test_broken_yaml_is_shown_at_its_line(fresh: Daemon, visit: Visit) -> None:
    page = visit.log_in(fresh, "/submit")
    page.get_by_test_id("verdict").wait_for()
    page.get_by_test_id("editor").locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.type("command: x\ngpus: [1\n")
    page.get_by_test_id("verdict").filter(has_text="line 2").wait_for()
    page.get_by_text("mend it at the right first").wait_for()


def test_the_forecast_shows_what_runs_and_what_will(busy: Daemon, visit: Visit) -> None:
    page = visit.log_in(busy, "/forecast")
    page.get_by_test_id("gantt").wait_for(timeout=30_000)
    page.locator("[data-job='1'] .sure").wait_for()
    waiting = page.locator("li[data-job='8']")
    waiting.wait_for(timeout=30_000)
    ticks = page.locator(".gantt .axis i").all_inner_texts()
    assert ticks[0] == "now"
    assert all(re.fullmatch(r"\+\d+(\.5)? (s|min|h|days)", one) for one in ticks[1:]), ticks
    assert "starts in" in (waiting.locator(".track").get_attribute("aria-label") or "")


def test_a_policy_is_tried_and_switched_to(fresh: Daemon, visit: Visit) -> None:
    fresh.submit(name="sleeps", command="sleep 60", gpus=1, cpus=0, epochs=3, estimated_hours=0.1)
    page = visit.log_in(fresh, "/policies")
    page.get_by_test_id("current-policy").filter(has_text="elastic-fifo").wait_for()
    page.get_by_label("Policy").select_option("srjf")
    page.get_by_role("button", name="What if?").click()
    page.get_by_test_id("what-if").filter(has_text="srjf instead of elastic-fifo").wait_for(timeout=30_000)
    page.get_by_test_id("what-if-ends").locator("canvas").wait_for()
    for policy in ("elastic-fifo", "srjf"):
        page.get_by_test_id("what-if-ends").locator(".u-legend").get_by_text(policy).wait_for()
    page.get_by_role("button", name="Switch to it").click()
    page.get_by_test_id("current-policy").filter(has_text="srjf").wait_for()
    assert fresh.get("/v1/policy")["name"] == "srjf"
