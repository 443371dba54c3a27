"""/docs: the API browser, served by the daemon and working without a network."""

from __future__ import annotations

import json

from harness import Daemon
from web.conftest import Visit


def test_every_route_is_listed_found_by_its_words_and_can_be_called(busy: Daemon, visit: Visit) -> None:
    page = visit.log_in(busy, "/docs")
    page.get_by_role("heading", level=1, name="API").wait_for()
    document = busy.get("/v1/openapi.json")
    routes = sum(1 for methods in document["paths"].values() for method in methods if method != "parameters")
    page.locator("details.route").first.wait_for()
    assert page.locator("details.route").count() == routes

    page.get_by_role("searchbox", name="Search routes").fill("get /v1/jobs/{job} by id")
    route = page.locator("details.route")
    assert route.count() == 1
    route.locator("summary").click()
    route.get_by_label("job").fill("1")
    assert f"{busy.token}" not in page.content()
    route.get_by_role("button", name="Ask").click()
    page.get_by_test_id("answer").filter(has_text='"name"').wait_for()
    assert json.loads(page.get_by_test_id("answer").inner_text())["id"] == 1


def test_a_refusal_is_shown_with_its_reason(busy: Daemon, visit: Visit) -> None:
    visit.expected.append("404")
    page = visit.log_in(busy, "/docs")
    page.get_by_role("searchbox", name="Search routes").fill("/v1/jobs/{job}/pause")
    page.locator("details.route summary").click()
    page.get_by_label("job").fill("99999")
    page.get_by_role("button", name="Do it").click()
    page.get_by_test_id("answer").filter(has_text="404: there is no job 99999").wait_for()


def test_a_body_is_described_field_by_field(busy: Daemon, visit: Visit) -> None:
    page = visit.log_in(busy, "/docs")
    page.get_by_role("searchbox", name="Search routes").fill("post /v1/jobs/{job}/priority")
    page.locator("details.route summary").click()
    page.get_by_role("heading", name="Body: Priority").wait_for()
    page.get_by_text("needed", exact=True).wait_for()
