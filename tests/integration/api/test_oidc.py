"""Log-in to the dashboard by a real OpenID provider (oidc-provider-mock, a process of its own)."""

import importlib.util
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from harness import eventually
from integration.api.conftest import Server
from swell.core.account_events import UserSet
from swell.core.accounts import Role
from swell.core.oidc import OidcSettings

USERS = (
    {"sub": "1", "preferred_username": "ana", "groups": ["gpu"]},
    {"sub": "2", "preferred_username": "mallory", "groups": ["guests"]},
)


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    if importlib.util.find_spec("oidc_provider_mock") is None:
        pytest.skip("oidc-provider-mock is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    claims = [part for user in USERS for part in ("--user-claims", json.dumps(user))]
    command = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "--port", str(port), "-n", "true", *claims]
    provider = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: _answers(url), 60, what="the provider answers")
        yield url
    finally:
        provider.kill()
        provider.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/.well-known/openid-configuration").status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture
def settings(server: Server, issuer: str, tmp_path: Path) -> OidcSettings:
    secret = tmp_path / "client-secret"
    secret.write_text("hush\n")
    roles = {"gpu": Role.SUBMITTER}
    found = OidcSettings(issuer=issuer, client_id="swell", client_secret_file=str(secret), roles=roles)
    use(server, found)
    return found


def use(server: Server, settings: OidcSettings) -> None:
    context = server.app.state.context
    server.app.state.context = replace(context, config=replace(context.config, oidc=settings))


@pytest.fixture
def browser(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=20) as client:
        yield client


def at_provider(browser: httpx.Client, sub: str) -> str:
    """Begin, log in there; the address that the provider sends the browser back to."""
    begun = browser.get("/v1/ui/oidc")
    assert begun.status_code == 303, begun.text
    asked = parse_qs(urlsplit(begun.headers["location"]).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert asked["nonce"] != asked["state"]
    assert "httponly" in begun.headers["set-cookie"].lower(), "no script may read what ties a log-in to its browser"
    return str(browser.post(begun.headers["location"], data={"sub": sub}).headers["location"])


@pytest.mark.usefixtures("settings")
def test_a_user_logs_in_and_has_the_role_that_their_claim_gives(server: Server, browser: httpx.Client) -> None:
    back = browser.get(at_provider(browser, "1"))
    assert back.status_code == 303, back.text
    place, _, code = back.headers["location"].partition("#code=")
    assert place == "/"
    opened = browser.post("/v1/ui/sessions", json={"code": code}).json()
    who = browser.get("/v1/whoami", headers={"Authorization": f"Bearer {opened['token']}"}).json()
    assert who == {"user": "ana", "role": "submitter", "team": "", "by": "oidc"}
    assert server.engine.state.users["ana"].role is Role.SUBMITTER
    assert browser.post("/v1/ui/sessions", json={"code": code}).status_code == 401  # once


@pytest.mark.usefixtures("settings")
def test_a_user_who_is_known_gets_the_role_that_their_claim_gives_now(server: Server, browser: httpx.Client) -> None:
    server.engine.record(UserSet(name="ana", role=Role.VIEWER, team="vision", at_s=1.0))
    assert browser.get(at_provider(browser, "1")).status_code == 303
    ana = server.engine.state.users["ana"]
    assert (ana.role, ana.team) == (Role.SUBMITTER, "vision")


@pytest.mark.usefixtures("settings")
def test_somebody_whose_claims_give_no_role_is_not_let_in(server: Server, browser: httpx.Client) -> None:
    refused = browser.get(at_provider(browser, "2"))
    assert (refused.status_code, "mallory has none of the groups" in refused.json()["detail"]) == (403, True)
    assert "mallory" not in server.engine.state.users


@pytest.mark.usefixtures("settings")
def test_a_log_in_ends_in_the_browser_that_began_it_and_once_only(server: Server, browser: httpx.Client) -> None:
    address = at_provider(browser, "1")
    with httpx.Client(base_url=server.url) as other:
        assert other.get(address).status_code == 403  # a link that somebody was sent
    assert browser.get(address).status_code == 403  # and its state is used up
    made_up = "/v1/ui/oidc/callback?code=x&state=y"
    assert browser.get(made_up).status_code == 403


def test_a_token_for_another_client_or_of_another_issuer_lets_nobody_in(
    server: Server, browser: httpx.Client, settings: OidcSettings
) -> None:
    address = at_provider(browser, "1")
    use(server, replace(settings, client_id="another"))
    refused = browser.get(address)
    assert refused.status_code == 502, refused.text
    use(server, replace(settings, issuer=f"{settings.issuer}/"))
    refused = browser.get("/v1/ui/oidc")
    assert (refused.status_code, "to exactly that" in refused.json()["detail"]) == (502, True)


def test_without_a_provider_there_is_no_such_door(server: Server, browser: httpx.Client) -> None:
    assert browser.get("/v1/ui/oidc").status_code == 404
    assert server.client.get("/v1/health").json()["oidc"] is False


def test_a_provider_that_does_not_answer_is_named(server: Server, browser: httpx.Client) -> None:
    use(server, OidcSettings(issuer="http://127.0.0.1:1", client_id="swell"))
    refused = browser.get("/v1/ui/oidc")
    assert (refused.status_code, "check `oidc.issuer`" in refused.json()["detail"]) == (502, True)
