"""A client that knows several daemons of one database, or is told of another by a standby, asks the active one."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from swell.api.standby import Standby
from swell.client import http
from swell.client.errors import DaemonUnreachable, Refused
from swell.client.find import Address
from swell.client.http import ACTIVE_HEADER, Client


@contextmanager
def served(active: str | None) -> Iterator[str]:
    """The active daemon (None), or a standby that names it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = json.dumps({"title": "Standby"} if active is not None else {"user": "ana"}).encode()
            self.send_response(200 if active is None else 503)
            if active is not None:
                self.send_header(ACTIVE_HEADER, active)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            """Not here."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def suspended() -> Iterator[tuple[str, list[str]]]:
    """A daemon that answers the first request, and nothing any more: its connections are there, as with SIGSTOP."""
    asked: list[str] = []
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.path)
            if len(asked) > 1:
                over.wait(30)
                return
            body = json.dumps({"user": "ana"}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Not here."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        over.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def client(url: str, *others: str, active_file: str = "") -> Iterator[Client]:
    found = Client(Address(url=url, others=others, token="t" * 40, local=False, active_file=active_file))
    yield found
    found.close()


def test_a_standby_is_asked_where_the_active_one_is_also_for_what_is_not_sent_twice() -> None:
    with served(None) as active, served(active) as standby, client(standby) as one:
        assert one.get("/v1/whoami") == {"user": "ana"}
        assert one.post("/v1/jobs/1/cancel") == {"user": "ana"}


def test_one_that_is_dead_is_passed_over() -> None:
    with served(None) as active, client("http://127.0.0.1:1", active) as one:
        assert one.post("/v1/jobs/1/cancel") == {"user": "ana"}  # refused before it was sent


@contextmanager
def dying() -> Iterator[tuple[str, list[str]]]:
    """A daemon that is killed in the middle of its first answer, and has a successor at the same address."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "15")
            self.end_headers()
            self.wfile.write(b'{"user": "ana"}' if len(asked) > 1 else b'{"us')
            self.close_connection = True

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            """Not here."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_an_answer_that_breaks_off_is_asked_for_again_where_that_is_safe() -> None:
    with dying() as (url, asked), client(url) as one:
        assert one.get("/v1/whoami") == {"user": "ana"}
    assert len(asked) == 2


def test_an_answer_that_breaks_off_is_said_where_it_is_not() -> None:
    with dying() as (url, asked), client(url) as one, pytest.raises(DaemonUnreachable):
        one.post("/v1/jobs/1/cancel")
    assert len(asked) == 1


def test_one_that_is_suspended_costs_its_time_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FOLLOW_TIMEOUT_S", 1.0)
    with served(None) as active, suspended() as (stale, asked), client(stale, active) as one:
        assert one.get("/v1/whoami") == {"user": "ana"}  # over a connection that is kept
        assert one.get("/v1/whoami") == {"user": "ana"}
    assert len(asked) == 2


def test_the_file_of_the_shared_directory_leads_to_the_active_one(tmp_path: Path) -> None:
    file = tmp_path / "active.json"
    with served(None) as active, client("http://127.0.0.1:1", active_file=str(file)) as one:
        file.write_text(json.dumps({"url": active}))
        assert one.get("/v1/whoami") == {"user": "ana"}


def test_a_token_never_follows_to_where_others_can_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FOLLOW_S", 0.5)
    with served("http://gpu.lab.org:7000") as standby, client(standby) as one, pytest.raises(Refused) as refused:
        one.get("/v1/whoami")
    assert refused.value.status == 503


def test_a_daemon_that_stays_away_is_said_to_be_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FOLLOW_S", 0.5)
    with client("http://127.0.0.1:1", "http://127.0.0.1:2") as one, pytest.raises(DaemonUnreachable):
        one.get("/v1/whoami")


def test_a_standby_names_its_role_and_no_more_than_the_address() -> None:
    answer = Standby(lambda: "https://b:7000")._elsewhere()
    assert (answer.status_code, answer.headers[ACTIVE_HEADER]) == (503, "https://b:7000")
