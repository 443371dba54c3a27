"""A daemon for the in-job library's tests: the wire protocol over `core.agreement`, with faults one can ask for."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from swell.core.agreement import Agreement


@dataclass
class Faults:
    """Delays are drawn anew before a request is read and before its answer is sent: so they also come out of order."""

    delay_s: float = 0.0  # at most
    drop: float = 0.0  # this share of requests is read, and never answered
    hang: bool = False  # no answer to anything
    seed: int = 0


@dataclass
class FakeDaemon:
    faults: Faults = field(default_factory=Faults)
    agreement: Agreement = field(default_factory=Agreement)
    reports: list[dict[str, Any]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    url: str = ""
    stopped: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.faults.seed)

    def ask(self, *, spare: int = 0) -> None:
        with self.changed:
            self._learn(self.agreement.ask(spare=spare))

    def report(self, body: dict[str, Any]) -> dict[str, Any]:
        with self.changed:
            self.reports.append(body)
            ack = tuple(body["ack"]) if body.get("ack") else None
            self._hear(body, tuple(body["position"]), ack)
            return self._view()

    def stop(self, query: dict[str, str]) -> dict[str, Any]:
        position = (int(query["epoch"]), int(query["step"]))
        ack = (int(query["ack_epoch"]), int(query["ack_step"])) if "ack_epoch" in query else None
        with self.changed:
            self._hear(query, position, ack)
            self.changed.wait_for(
                lambda: self.agreement.news_for(ack) or self.stopped.is_set(), float(query.get("wait_s", 0))
            )
            return self._view()

    def epochs(self) -> list[dict[str, Any]]:
        """Every report of whole epochs so far."""
        return [entry for body in self.reports for entry in body["epochs"]]

    def _hear(self, said: Any, position: Any, ack: Any) -> None:
        self._learn(
            self.agreement.hear(
                rank=int(said["rank"]),
                world_size=int(said["world_size"]),
                position=position,
                ack=ack,
                steps=bool(int(said.get("steps", 0))),
                epochs=int(said["epochs"]) if isinstance(said.get("epochs"), str) else 0,
            )
        )

    def _learn(self, agreement: Agreement) -> None:
        if agreement.decided is not None and not agreement.confirmed:
            agreement = agreement.confirm()
        if agreement.view() != self.agreement.view():
            self.changed.notify_all()
        self.agreement = agreement

    def _view(self) -> dict[str, Any]:
        view = self.agreement.view()
        stop = None if view is None else {"at": list(view.at), "agreed": view.agreed}
        return {"stop": stop, "poll_s": 1.0}

    def misfortune(self) -> bool:
        """Wait as the faults say. True: do not answer."""
        if self.faults.hang:
            self.stopped.wait()
            return True
        with self.changed:
            delay_s, lost = self._rng.uniform(0, self.faults.delay_s), self._rng.random() < self.faults.drop
        if delay_s:
            time.sleep(delay_s)
        return lost


def _handler(daemon: FakeDaemon) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            self._answer(lambda: daemon.stop(query))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(lambda: daemon.report(body))

        def _answer(self, work: Any) -> None:
            if daemon.misfortune() and daemon.faults.hang:
                self.close_connection = True
                return
            answer = json.dumps(work()).encode()
            if daemon.misfortune():
                self.close_connection = True
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

        def handle(self) -> None:
            with suppress(ConnectionError, TimeoutError):  # the rank has left
                super().handle()

    return Handler


@contextmanager
def fake_daemon(faults: Faults | None = None) -> Iterator[FakeDaemon]:
    daemon = FakeDaemon(faults=faults or Faults())
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(daemon))
    server.daemon_threads = True
    daemon.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield daemon
    finally:
        daemon.stopped.set()
        with daemon.changed:
            daemon.changed.notify_all()
        server.shutdown()
        server.server_close()
        thread.join()
