"""Who gets in, how long, and what is said when one does not."""

from __future__ import annotations

import json
import re
from typing import Any

from harness import Daemon
from swell.web.assets import STATIC, Assets
from web.conftest import Visit, url

STORED = "() => sessionStorage.getItem('swell-session')"


def test_a_code_logs_in_once_and_leaves_no_trace(busy: Daemon, visit: Visit) -> None:
    code = busy.post("/v1/ui/codes")["code"]
    visit.page.goto(f"{url(busy)}/#code={code}")
    visit.page.get_by_role("heading", level=1, name="Cluster").wait_for()
    assert visit.page.url == f"{url(busy)}/"
    stored = visit.page.evaluate(STORED)
    assert code not in stored
    assert busy.token not in stored
    visit.page.evaluate("() => sessionStorage.clear()")
    visit.expected.append("401")
    visit.page.goto("about:blank")
    visit.page.goto(f"{url(busy)}/#code={code}")
    visit.page.get_by_test_id("farewell").filter(has_text="used already").wait_for()


def test_a_link_never_makes_us_work_in_the_name_of_somebody_else_unasked(busy: Daemon, visit: Visit) -> None:
    """What we submit then would be theirs to read."""
    made = busy.post("/v1/tokens", {"user": "kim", "days": 1})
    asked: list[str] = []
    go_on = False

    def decide(dialog: Any) -> None:
        asked.append(dialog.message)
        dialog.accept() if go_on else dialog.dismiss()

    def follow_a_link_of_kims() -> str:
        headers = {"Authorization": f"Bearer {made['token']}"}
        code = busy.post("/v1/ui/codes", headers=headers)["code"]
        page = visit.new_page()  # as a link in a mail opens one
        page.on("dialog", decide)
        page.goto(f"{url(busy)}/#code={code}")
        page.get_by_role("heading", level=1, name="Cluster").wait_for()
        user = str(json.loads(page.evaluate(STORED))["user"])
        page.close()
        return user

    ours = busy.post("/v1/ui/codes", headers={"Swell-User": "ada"})["code"]
    visit.page.goto(f"{url(busy)}/#code={ours}")
    visit.page.get_by_role("heading", level=1, name="Cluster").wait_for()
    assert follow_a_link_of_kims() == "ada"
    assert asked == ["You are logged in as ada. This link logs you in as kim: go on as kim?"]
    go_on = True
    assert follow_a_link_of_kims() == "kim"
    busy.request("DELETE", f"/v1/tokens/{made['id']}")


def test_the_token_can_be_pasted_and_a_wrong_one_is_refused_at_the_field(busy: Daemon, visit: Visit) -> None:
    visit.expected.append("401")
    visit.page.goto(url(busy))
    field = visit.page.get_by_label("Token")
    field.fill("w" * 40)
    visit.page.get_by_role("button", name="Log in").click()
    visit.page.locator("#token-wrong").filter(has_text="token").wait_for()
    assert field.get_attribute("aria-invalid") == "true"
    field.fill(busy.token)
    field.press("Enter")
    visit.page.get_by_role("heading", level=1, name="Cluster").wait_for()
    assert busy.token not in visit.page.evaluate(STORED)


def test_a_new_tab_of_the_same_page_is_logged_in_and_logging_out_ends_both(busy: Daemon, visit: Visit) -> None:
    first = visit.log_in(busy)
    second = visit.new_page()
    second.goto(f"{url(busy)}/jobs")
    second.get_by_role("heading", level=1, name="Jobs").wait_for()
    first.get_by_role("button", name="Log out").click()
    first.get_by_test_id("farewell").wait_for()
    second.get_by_test_id("farewell").filter(has_text="another tab").wait_for()


def test_an_ended_session_is_said_plainly(busy: Daemon, visit: Visit) -> None:
    visit.expected.append("401")
    page = visit.log_in(busy)
    session = json.loads(page.evaluate(STORED))
    old = re.sub(r"^ui-\d+", "ui-1700000000", session["token"])
    page.evaluate(
        "token => sessionStorage.setItem('swell-session', JSON.stringify({token, ends_s: Date.now(), user: ''}))", old
    )
    page.reload()
    page.get_by_test_id("farewell").filter(has_text="has ended").wait_for()
    assert visit.page.get_by_label("Token").is_visible()


def test_an_open_page_says_that_its_token_was_revoked(busy: Daemon, visit: Visit) -> None:
    """Without a click of its reader: what the page shows would be old, and look live."""
    visit.expected.append("401")
    made = busy.post("/v1/tokens", {"user": "kim", "days": 1})
    code = busy.post("/v1/ui/codes", headers={"Authorization": f"Bearer {made['token']}"})["code"]
    visit.page.goto(f"{url(busy)}/#code={code}")
    visit.page.get_by_role("heading", level=1, name="Cluster").wait_for()
    busy.request("DELETE", f"/v1/tokens/{made['id']}")
    visit.page.get_by_test_id("farewell").wait_for()
    assert visit.page.get_by_label("Token").is_visible()


def test_the_dashboard_is_small() -> None:
    """All of it, compressed as it is sent."""
    files = [path for path in STATIC.rglob("*") if path.is_file()]
    assets = [Assets().find(f"/{path.relative_to(STATIC).as_posix()}") for path in files]
    size = sum(len(asset.gzipped) for asset in assets if asset is not None)
    assert 50_000 < size < 400_000, size


def test_the_log_in_of_an_organisation_is_offered_where_there_is_one(busy: Daemon, visit: Visit) -> None:
    link = visit.page.get_by_role("link", name="Log in with your organisation")
    visit.page.goto(url(busy))
    visit.page.get_by_label("Token").wait_for()
    assert link.count() == 0
    answer = {**busy.get("/v1/health"), "oidc": True}
    visit.page.route("**/v1/health", lambda route: route.fulfill(json=answer))
    visit.page.reload()
    link.wait_for()
    assert link.get_attribute("href") == "/v1/ui/oidc"
