"""How a notice is posted: over what, where to, and what counts as taken."""

from __future__ import annotations

import http.client
from types import SimpleNamespace
from typing import Any

import pytest

from swell.core.notices import Hook
from swell.daemon import hooks
from swell.daemon.hooks import _post


class Fake:
    """A connection that is answered with `status`."""

    made: list[tuple[str, tuple[Any, ...]]] = []  # noqa: RUF012 - by kind
    kind, status = "", 204

    def __init__(self, host: str, port: int | None, timeout: float) -> None:
        self.host = host

    def request(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> None:
        self.made.append((self.kind, (method, self.host, target)))

    def getresponse(self) -> Any:
        return SimpleNamespace(status=self.status, reason="said so", read=lambda _: b"")

    def close(self) -> None:
        """Nothing is open."""


class Secure(Fake):
    kind = "https"


class Plain(Fake):
    kind = "http"


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fake, "made", [])
    monkeypatch.setattr(http.client, "HTTPSConnection", Secure)
    monkeypatch.setattr(http.client, "HTTPConnection", Plain)
    monkeypatch.setattr(hooks, "body_of", lambda *_: b"{}")


def post(url: str) -> None:
    _post(Hook(url=url), None, 1, 5.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "kind", "target"),
    [("https://a.example", "https", "/"), ("http://a.example/in?key=1", "http", "/in?key=1")],
)
def test_a_notice_is_posted_over_what_its_address_says(url: str, kind: str, target: str) -> None:
    post(url)
    assert Fake.made == [(kind, ("POST", "a.example", target))]


@pytest.mark.parametrize("status", [302, 404, 503])
def test_any_other_answer_than_a_success_is_a_refusal(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fake, "status", status)
    with pytest.raises(OSError, match=f"it answered {status}"):
        post("http://a.example")
