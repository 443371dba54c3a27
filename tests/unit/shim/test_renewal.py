"""A pod's lease against a daemon that answers over a real socket: what it gives holds, and nothing else does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from swell.shim import lease, renewal
from swell.shim.files import boot_id, boot_s
from swell.shim.renewal import NoLease, Renewal


class Answers(BaseHTTPRequestHandler):
    status = 200
    until_s: float | None = None
    epoch = 1
    asked: list[dict[str, Any]]

    def do_POST(self) -> None:
        self.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(json.dumps({"until_s": self.until_s, "epoch": self.epoch, "every_s": 0.01}).encode())

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@contextmanager
def daemon(**answers: object) -> Iterator[tuple[str, type[Answers]]]:
    kind = type("Daemon", (Answers,), {"asked": [], **answers})
    server = HTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", kind
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "PAUSE_S", 0.01)


def test_a_lease_holds_until_the_end_that_the_daemon_gave(tmp_path: Path) -> None:
    with daemon(until_s=boot_s() + 50.0) as (url, answers):
        found = Renewal(str(tmp_path), url, "7.1", "node-1", "t")
        found.begin(5.0)
        assert 40.0 < found.left_s() <= 50.0
        assert answers.asked[0]["node"] == "node-1"
        assert answers.asked[0]["boot_s"] <= boot_s()


def test_an_answer_that_came_too_late_starts_nothing(tmp_path: Path) -> None:
    """The end is absolute: a request that was held up on its way is answered with a lease that is over."""
    with daemon(until_s=boot_s() - 1.0) as (url, answers):
        found = Renewal(str(tmp_path), url, "7.1", "node-1", "t")
        threading.Timer(0.1, lambda: setattr(answers, "status", 410)).start()
        with pytest.raises(NoLease):
            found.begin(5.0)


def test_a_run_that_is_over_for_the_daemon_does_not_start(tmp_path: Path) -> None:
    with daemon(status=410) as (url, _):
        found = Renewal(str(tmp_path), url, "7.1", "node-1", "t")
        with pytest.raises(NoLease) as told:
            found.begin(5.0)
        assert told.value.refused
        assert found.left_s() < 0


def test_a_daemon_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    found = Renewal(str(tmp_path), "http://127.0.0.1:1", "7.1", "node-1", "t")
    with pytest.raises(NoLease, match=r"cannot reach the daemon at http://127\.0\.0\.1:1") as told:
        found.begin(0.0)
    assert not told.value.refused


def test_an_older_daemon_that_wakes_up_extends_nothing(tmp_path: Path) -> None:
    lease.renew(str(tmp_path), boot_id(), boot_s() + 20.0, 5)
    with daemon(until_s=None, epoch=4) as (url, _):
        found = Renewal(str(tmp_path), url, "7.1", "node-1", "t")
        found.begin(5.0)
        assert found.left_s() <= 20.0
