"""`swell ui`: an address that lets one page in, once."""

import json
from urllib.parse import urlsplit

import httpx

from harness import Daemon
from integration.cli.conftest import Shell


def test_the_address_lets_one_page_in_and_does_not_hold_the_token(served: Daemon, sh: Shell) -> None:
    url = json.loads(sh("ui", "--json").out)["url"]
    parts = urlsplit(url)
    assert served.token not in url
    assert parts.fragment.startswith("code=")
    body = {"code": parts.fragment.removeprefix("code=")}
    door = f"{parts.scheme}://{parts.netloc}/v1/ui/sessions"
    session = httpx.post(door, json=body)
    assert session.status_code == 201
    assert httpx.post(door, json=body).status_code == 401
    bearer = {"Authorization": f"Bearer {session.json()['token']}"}
    assert httpx.get(f"{parts.scheme}://{parts.netloc}/v1/jobs", headers=bearer).status_code == 200


def test_without_a_browser_the_address_is_printed(served: Daemon, sh: Shell) -> None:
    assert "#code=" in sh("ui", "--no-browser").out
