"""The lanes: what happens to GPUs can be seen while it happens."""

from __future__ import annotations

from functools import partial
from typing import Any

from harness import Daemon, eventually
from swell.core import events as ev
from swell.core.idle import GpuUse
from swell.core.resources import Contact
from web.conftest import Visit, training
from web.replay import Week, engine_with, machines, served

COLUMN = """() => {
  const canvas = document.querySelector('[data-testid=lanes]');
  const ratio = canvas.width / canvas.clientWidth;
  const x = Math.round((118 + 0.94 * (canvas.clientWidth - 118) - 7) * ratio);
  const data = canvas.getContext('2d').getImageData(x, 0, 1, canvas.height).data;
  const counts = {};
  for (let y = Math.round(84 * ratio); y < canvas.height; y++) {
    const [r, g, b] = [data[4 * y], data[4 * y + 1], data[4 * y + 2]];
    if (Math.max(r, g, b) - Math.min(r, g, b) < 40) continue;  // lanes and ground are nearly grey; jobs are not
    const key = [r, g, b].join();
    counts[key] = (counts[key] || 0) + 1;
  }
  return counts;
}"""
"""Colours of the lanes just before now, each with its height in pixels."""


def heights(page: Any) -> list[int]:
    """Of jobs, the tallest first; edges and signs are small and left out."""
    return sorted((n for n in page.evaluate(COLUMN).values() if n > 12), reverse=True)


def test_a_job_is_seen_to_grow_and_to_shrink_as_it_happens(fresh: Daemon, visit: Visit) -> None:
    visit.expected.append("willReadFrequently")  # the test reads pixels
    page = visit.log_in(fresh)
    page.get_by_role("button", name="1 min", exact=True).click()
    assert heights(page) == []
    (first,) = fresh.submit(**training("grows", 200, 1, 4, 1.0))
    eventually(lambda: len(heights(page)) == 1, 20, what="the job is on the lanes")
    whole = heights(page)[0]
    (second,) = fresh.submit(**training("comes", 200, 2, 2, 1.0, 2))
    eventually(lambda: len(heights(page)) == 2, 30, what="the first made room and the second came")
    assert heights(page)[0] < 0.8 * whole
    fresh.post(f"/v1/jobs/{second}/cancel")
    eventually(lambda: len(heights(page)) == 1 and heights(page)[0] >= 0.9 * whole, 30, what="the first grew again")
    page.get_by_role("button", name="As a table").click()
    page.get_by_role("cell", name="resizing", exact=False).first.wait_for()
    assert fresh.get(f"/v1/jobs/{first}")["resizes"] >= 2


def test_pointing_at_a_block_tells_whose_it_is_and_a_click_goes_there(busy: Daemon, visit: Visit) -> None:
    page = visit.log_in(busy)
    page.wait_for_timeout(500)
    box = page.get_by_test_id("lanes").bounding_box()
    at = {"x": 118 + 0.94 * (box["width"] - 118) - 10, "y": 84 + 26 + 12}
    eventually(lambda: (page.mouse.move(box["x"] + at["x"], box["y"] + at["y"]), page.locator(".tip").count())[1], 10)
    tip = page.locator(".tip").inner_text()
    assert "GPU" in tip
    assert "because" in tip
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url("**/jobs/*")


def test_time_is_moved_by_mouse_wheel_and_keys(busy: Daemon, visit: Visit) -> None:
    page = visit.log_in(busy)
    live = page.get_by_role("button", name="Live")
    assert live.get_attribute("aria-pressed") == "true"
    lanes = page.get_by_role("application")
    lanes.focus()
    page.keyboard.press("ArrowLeft")
    assert live.get_attribute("aria-pressed") == "false"
    page.keyboard.press("Home")
    eventually(lambda: live.get_attribute("aria-pressed") == "true", 5)
    box = lanes.bounding_box()
    page.mouse.move(box["x"] + 600, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 800, box["y"] + 200, steps=5)
    page.mouse.up()
    assert page.url.endswith("/"), "a drag is not a click"
    assert live.get_attribute("aria-pressed") == "false"
    live.click()
    page.get_by_role("button", name="7 days").click()
    page.get_by_role("button", name="7 days").and_(page.locator("[aria-pressed=true]")).wait_for()


def test_two_fingers_zoom(busy: Daemon, browser: Any) -> None:
    visit = Visit(browser, has_touch=True)
    page = visit.log_in(busy)
    half_an_hour = page.get_by_role("button", name="30 min")
    half_an_hour.click()
    assert half_an_hour.get_attribute("aria-pressed") == "true"
    box = page.get_by_role("application").bounding_box()
    y = box["y"] + 200
    screen = visit.context.new_cdp_session(page)
    for kind, apart in (("Start", 100), ("Move", 180), ("Move", 260)):
        points = [{"x": box["x"] + 600 + sign * apart / 2, "y": y, "id": sign + 1} for sign in (-1, 1)]
        screen.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})
    screen.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    eventually(lambda: half_an_hour.get_attribute("aria-pressed") == "false", 5)
    assert page.url.endswith("/"), "two fingers are not a click"
    visit.context.close()
    visit.check()


def test_the_tip_is_seen_wherever_the_pointer_is(visit: Visit) -> None:
    with served(Week(bars=2000)) as made:
        page = visit.log_in(made)
        page.get_by_role("button", name="12 h").click()
        lanes = page.get_by_role("application")
        lanes.evaluate("one => { one.scrollTop = one.scrollHeight }")
        box = lanes.bounding_box()
        for from_top in (180, box["height"] - 40):  # where there are lanes
            eventually(partial(_tip_at, page, box, from_top), 10, what=f"a tip {from_top} below")
            tip = page.locator(".tip").bounding_box()
            assert box["y"] <= tip["y"] + 1
            assert tip["y"] + tip["height"] <= box["y"] + box["height"] + 1
        page.close()


def _tip_at(page: Any, box: Any, down: float) -> bool:
    for across in range(300, 1000, 40):
        page.mouse.move(box["x"] + across, box["y"] + down)
        page.wait_for_timeout(50)
        if page.locator(".tip").count():
            return True
    return False


def test_views_are_reached_by_keys(busy: Daemon, visit: Visit) -> None:
    page = visit.log_in(busy)
    for key, heading in (
        ("j", "Jobs"),
        ("f", "Queue forecast"),
        ("p", "Policies"),
        ("m", "Machines"),
        ("c", "Cluster"),
    ):
        page.keyboard.press(key)
        page.get_by_role("heading", level=1, name=heading).wait_for()
    page.keyboard.press("j")
    page.keyboard.press("/")
    page.keyboard.type("bert")
    eventually(lambda: page.locator(".body .row").count() == 1, 5)


def test_machines_are_cordoned_and_come_back(fresh: Daemon, visit: Visit) -> None:
    page = visit.log_in(fresh, "/machines")
    card = page.locator("[data-node]")
    card.get_by_role("button", name="Cordon").click()
    card.get_by_text("cordoned", exact=True).wait_for()
    assert fresh.get("/v1/nodes")["nodes"][0]["condition"] == "cordoned"
    card.get_by_role("button", name="Uncordon").click()
    card.get_by_text("ready", exact=True).wait_for()
    card.get_by_role("button", name="Drain").click()
    card.get_by_text("draining", exact=True).wait_for()


def test_machines_say_whether_they_answer(visit: Visit) -> None:
    events: list[ev.Event] = [ev.NodeObserved(node=node, at_s=0.0) for node in machines(4)]
    for name, contact in (("gpu-02", Contact.AWAY), ("gpu-03", Contact.RETURNING), ("gpu-04", Contact.LOST)):
        events.append(ev.NodeContactChanged(node=name, contact=contact, at_s=1.0, why="the switch is off"))
    with served(engine_with(events)) as made:
        page = visit.log_in(made, "/machines")
        for name, state in (("gpu-01", "ready"), ("gpu-02", "away"), ("gpu-03", "returning"), ("gpu-04", "lost")):
            page.locator(f"[data-node={name}]").get_by_text(state, exact=True).wait_for()
        page.locator("[data-node=gpu-02]").get_by_text("its jobs go on by themselves").wait_for()
        assert visit.axe() == []
        page.close()


def test_what_gpus_do_is_measured_and_shown(visit: Visit) -> None:
    engine = engine_with([ev.NodeObserved(node=node, at_s=0.0) for node in machines(1)])
    engine.idle_gpus.use = {
        ("gpu-01", 0): GpuUse(percent=87, memory_mib=4096),
        ("gpu-01", 1): GpuUse(percent=None, memory_mib=1024),
    }
    with served(engine) as made:
        page = visit.log_in(made, "/machines")
        meter = page.get_by_label("utilisation of GPU 0", exact=True)
        meter.wait_for()
        assert meter.evaluate("one => one.value") == 87
        page.get_by_text("87 % busy, 4.0 GiB in use").wait_for()
        assert page.get_by_label("utilisation of GPU 1", exact=True).count() == 0
        page.get_by_text("1.0 GiB in use", exact=True).wait_for()
        page.close()
