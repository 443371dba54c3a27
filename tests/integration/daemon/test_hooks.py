"""Notices reach a real receiver: signed, again after an outage of it, and from where they were after a restart."""

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from harness import daemon, eventually

SECRET = "s" * 40


class Receiver(ThreadingHTTPServer):
    """Takes notices; refuses the first `refusals`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.taken: list[tuple[dict[str, Any], str, bytes]] = []
        self.refusals = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/notices"

    def texts(self) -> list[str]:
        return [body["text"] for body, _, _ in self.taken]


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.refusals:
            self.server.refusals -= 1
            self.send_response(503)
        else:
            self.server.taken.append((json.loads(body), self.headers.get("Swell-Signature", ""), body))
            self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.shutdown()
    found.server_close()


def home_with(tmp_path: Path, **hook: object) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(json.dumps({"hooks": {"team": hook}}))
    return home


def test_notices_arrive_signed_in_order_and_again_after_a_refusal(tmp_path: Path, receiver: Receiver) -> None:
    (tmp_path / "secret").write_text(SECRET)
    receiver.refusals = 1
    with daemon(home_with(tmp_path, url=receiver.url, secret_file=str(tmp_path / "secret"))) as served:
        (bad,) = served.submit(name="bad", command="echo no data >&2; exit 3", user="ana")
        eventually(lambda: receiver.taken, 60, what="the notice is sent again and taken")
        (good,) = served.submit(name="good", command="true", user="ana")
        eventually(lambda: len(receiver.taken) == 2, 60, what="both are told")
        view = served.get("/v1/hooks")["hooks"][0]
        assert (view["sent"], view["trouble"]) == (2, "")
        assert served.post("/v1/hooks/team/test")["trouble"] == ""
    assert [(body["kind"], body["job"]) for body, _, _ in receiver.taken][:2] == [("failed", bad), ("ended", good)]
    for _, signature, body in receiver.taken:
        at, _, given = signature.removeprefix("t=").partition(",v1=")
        assert hmac.new(SECRET.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest() == given


def test_what_happened_while_nobody_took_notices_is_told_after_a_restart(tmp_path: Path, receiver: Receiver) -> None:
    with daemon(home_with(tmp_path, url=receiver.url, style="slack", kinds=["ended"])) as served:
        served.submit(name="first", command="true")
        eventually(lambda: receiver.taken, 60, what="the first is told")
        receiver.refusals = 1_000
        served.submit(name="second", command="true")
        eventually(lambda: receiver.refusals < 1_000, 60, what="the second is refused")
        served.kill()
        receiver.refusals = 0
        served.start()
        eventually(lambda: len(receiver.taken) == 2, 60, what="the second is told by the next daemon")
    assert receiver.texts()[0].startswith("job 1 (first")
    assert receiver.texts()[1].startswith("job 2 (second")
    assert set(receiver.taken[0][0]) == {"text"}


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        ({"url": "ftp://x"}, "needs a url"),
        ({"url": "smtp://localhost/?to=a@b"}, "e-mail needs from and to"),
        ({"url": "https://x", "kinds": ["fail"]}, "no notices of the kind 'fail'"),
        ({"url": "https://x", "style": "teams"}, "json or slack"),
    ],
)
def test_a_hook_that_cannot_work_is_refused_at_the_start(tmp_path: Path, hook: dict[str, Any], said: str) -> None:
    from swell.config import ConfigError, load_config

    home = home_with(tmp_path, **hook)
    with pytest.raises(ConfigError, match=said):
        load_config(home)
