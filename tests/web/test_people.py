"""Users and teams: what they have, have had, and are entitled to."""

from __future__ import annotations

import json
import subprocess
import sys

from harness import Daemon, eventually
from web.conftest import Visit


def test_users_and_teams_with_the_numbers_of_history(busy: Daemon, visit: Visit) -> None:
    page = visit.log_in(busy, "/users")
    users = page.get_by_test_id("users")
    ada = users.get_by_role("row").filter(has=page.get_by_role("rowheader", name="ada"))
    ada.get_by_text("admin").wait_for()
    teams = page.get_by_test_id("teams")
    vision = teams.get_by_role("row").filter(has=page.get_by_role("rowheader", name="vision"))
    vision.get_by_text("6 GPUs").wait_for()
    vision.get_by_text("of 500").wait_for()

    words = [sys.executable, "-m", "swell", "history", "--home", str(busy.home), "--by", "user", "--json"]
    said = json.loads(subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout)
    shown = {one["name"]: one for one in busy.get("/v1/usage")["users"]}
    for line in said:
        found = shown[line["user"]]
        assert (found["jobs"], found["completed"], found["failed"]) == (line["jobs"], line["completed"], line["failed"])
        assert abs(found["gpu_hours"] - line["gpu_hours"]) < 0.05  # both go on while they are read


def test_an_admin_sees_when_a_token_was_last_used_and_revokes_it(fresh: Daemon, visit: Visit) -> None:
    fresh.request("PUT", "/v1/users/kim", {"role": "submitter"})
    fresh.post("/v1/tokens", {"user": "kim", "note": "old laptop"})
    page = visit.log_in(fresh, "/users")
    row = page.get_by_test_id("tokens").get_by_role("row").filter(has_text="old laptop")
    row.get_by_text("not yet").wait_for()
    row.get_by_role("button", name="Revoke").click()
    page.get_by_text("works no longer").wait_for()
    eventually(lambda: fresh.get("/v1/tokens")["tokens"] == [], 10)
