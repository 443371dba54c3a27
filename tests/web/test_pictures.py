"""Every view in light and dark, wide and narrow: nothing serious from axe, nothing cut off, and a picture of each."""

from __future__ import annotations

from typing import Any

import pytest

from harness import Daemon, eventually
from web.conftest import IMAGES, NARROW, WIDE, Visit, url
from web.replay import afternoon, engine_with, served

MAX_BYTES = 200_000
"""Of one picture: all of them are in the repository."""
SPILLED = """() => [...document.querySelectorAll('td, th')].filter(cell => {
  const text = document.createRange();
  text.selectNodeContents(cell);
  const [inner, outer] = [text.getBoundingClientRect(), cell.getBoundingClientRect()];
  return inner.width > 0 && (inner.left < outer.left - 1 || inner.right > outer.right + 1);
}).map(cell => cell.innerText)"""
"""Cells of tables whose text reaches into the next one."""
CUT = """() => [...document.querySelectorAll('.top *, .grid .row *')].filter(one => {
  const box = one.getBoundingClientRect();
  const whole = one.matches('nav, .progress, .gpus, .state, .eta');
  return box.right > innerWidth + 1 || (whole && one.scrollWidth > one.clientWidth + 1);
}).map(one => one.innerText)"""
"""Links of the frame, and heads of columns, that a window between wide and narrow would hide."""
MIDDLE = {"width": 1024, "height": 768}
VIEWS = {
    "cluster": ("/", "Cluster"),
    "jobs": ("/jobs", "Jobs"),
    "job": ("/jobs/1", "resnet50"),
    "submit": ("/submit", "New job"),
    "forecast": ("/forecast", "Queue forecast"),
    "policies": ("/policies", "Policies"),
    "simulate": ("/simulate", "Simulate"),
    "machines": ("/machines", "Machines"),
    "users": ("/users", "Users and teams"),
    "docs": ("/docs", "API"),
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_in_both_themes_and_widths(busy: Daemon, visit: Visit, view: str) -> None:
    path, heading = VIEWS[view]
    page = visit.log_in(busy, path)
    page.get_by_role("heading", level=1, name=heading).wait_for()
    _settle(page, view)
    IMAGES.mkdir(parents=True, exist_ok=True)
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        page.wait_for_function("theme => document.documentElement.dataset.theme === theme", arg=theme)
        page.set_viewport_size(MIDDLE)
        assert page.evaluate(CUT) == []
        for name, size in (("wide", WIDE), ("narrow", NARROW)):
            page.set_viewport_size(size)
            page.wait_for_timeout(250)  # one more frame of the canvas
            too_wide = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
            assert too_wide <= 0, f"{view} is cut off at {size['width']} pixels"
            assert page.evaluate(SPILLED) == []
            page.screenshot(path=IMAGES / f"{view}-{theme}-{name}.png")
            assert (IMAGES / f"{view}-{theme}-{name}.png").stat().st_size < MAX_BYTES
        page.set_viewport_size(WIDE)
        assert visit.axe() == []


def _settle(page: Any, view: str) -> None:
    """Wait for what comes after the heading."""
    if view == "cluster":
        eventually(lambda: "of 8" in page.get_by_test_id("summary").inner_text(), 10)
        page.wait_for_timeout(800)
    elif view == "jobs":
        page.locator("[data-job='1']").wait_for()
    elif view == "job":
        page.get_by_test_id("speed").locator("canvas").wait_for()
        page.get_by_test_id("metrics").locator("canvas").wait_for()
    elif view == "submit":
        page.get_by_test_id("verdict").filter(has_text="my-training").wait_for()
        page.get_by_test_id("editor").locator(".cm-line").first.wait_for()
    elif view == "forecast":
        page.get_by_test_id("gantt").wait_for(timeout=30_000)
    elif view == "policies":
        page.get_by_label("Policy").select_option("srjf")
        page.get_by_role("button", name="What if?").click()
        page.get_by_test_id("what-if").wait_for(timeout=30_000)
    elif view == "simulate":
        page.get_by_label("Seed").fill("4")
        page.get_by_label("Cluster", exact=True).fill("2x8xA100")
        page.get_by_role("button", name="Simulate", exact=True).click()
        page.get_by_test_id("comparison").wait_for(timeout=90_000)
        page.get_by_test_id("comparison").evaluate("one => one.scrollIntoView()")
    elif view == "users":
        page.get_by_test_id("users").get_by_role("row").nth(3).wait_for()
        page.get_by_test_id("tokens").wait_for()
    elif view == "docs":
        page.get_by_test_id("docs-jobs").get_by_text("/v1/jobs", exact=True).first.click()
        page.get_by_role("button", name="Ask").wait_for()
    elif view == "machines":
        page.locator("[data-node]").wait_for()


def test_the_log_in_page(busy: Daemon, visit: Visit) -> None:

    visit.page.goto(url(busy))
    visit.page.get_by_label("Token").wait_for()
    assert visit.axe() == []


def test_an_afternoon_on_three_machines(visit: Visit) -> None:
    """The picture that the README opens with: 24 GPUs over three simulated hours."""
    with served(engine_with(afternoon())) as made:
        page = visit.log_in(made)
        page.set_viewport_size({"width": 1280, "height": 800})
        page.get_by_role("button", name="2 h", exact=True).click()
        page.wait_for_timeout(1500)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            page.wait_for_timeout(400)
            page.screenshot(path=IMAGES / f"afternoon-{theme}.png")
            assert (IMAGES / f"afternoon-{theme}.png").stat().st_size < MAX_BYTES
        page.close()
