"""The link to the daemon: two threads beside the training, which never waits for either.

One asks "must I stop?" (a long poll, answered at once when there is news). Only this thread feeds the gate, so that
answers arrive in the order of their requests. The other thread sends reports, at most one per `poll_s`. After any error
they try again later, at growing intervals. A daemon that hangs costs one thread that sleeps in a socket.
"""

from __future__ import annotations

import json
import random
import threading
import time
from typing import Any, Callable  # noqa: UP035  see settings.py
from urllib.parse import urlencode, urlsplit

from swell.sdk.gate import Gate
from swell.sdk.outbox import Outbox
from swell.sdk.settings import Place, Settings

LONG_POLL_S = 10.0
TIMEOUT_S = 5.0
FIRST_PAUSE_S, MAX_PAUSE_S = 0.25, 5.0
SAME_AGAIN_S = 0.02
"""Pause between two polls with the same answer, so that no daemon can make this loop spin."""


_spread = random.Random()  # noqa: S311  spreads the ranks, guards nothing; the module's own numbers are the training's


class Unreachable(Exception):
    """No usable answer: connection refused, time-out, invalid JSON, or an error status."""


class Refused(Unreachable):
    """The daemon rejected the request as invalid: sending it again would not help."""


class Channel:
    """One kept-alive HTTP connection with time-outs. Not shared between threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._target = urlsplit(settings.url)
        self._connection: Any = None

    def _find(self) -> None:
        """Another daemon may have taken over at another address; the file says which. Without it: as before."""
        try:
            with open(self._settings.active_file, encoding="utf-8") as file:  # noqa: PTH123 - pathlib loads slowly
                self._target = urlsplit(str(json.load(file)["url"]))
        except (OSError, ValueError, KeyError, TypeError):
            pass

    def call(self, method: str, path: str, body: Any = None, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
        """A kept-alive connection that the daemon has closed meanwhile is opened again, once."""
        fresh = self._connection is None
        try:
            return self._call(method, path, body, timeout_s)
        except Unreachable:
            raise
        except Exception as error:
            self.close()
            if fresh or isinstance(error, TimeoutError):
                raise Unreachable(str(error)) from error
        try:
            return self._call(method, path, body, timeout_s)
        except Exception as error:
            self.close()
            raise Unreachable(str(error)) from error

    def _call(self, method: str, path: str, body: Any, timeout_s: float) -> dict[str, Any]:
        connection = self._connection or self._open(timeout_s)
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        payload = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        headers = {"Authorization": "Bearer " + self._settings.token, "Content-Type": "application/json"}
        base = "" if self._target.scheme == "unix" else self._target.path.rstrip("/")
        connection.request(method, base + path, payload, headers)
        response = connection.getresponse()
        data = response.read()
        if response.status >= 300:
            kind = Refused if response.status in (400, 410, 413, 422) else Unreachable
            raise kind(f"{response.status} {response.reason}")
        answer = json.loads(data)
        if not isinstance(answer, dict):
            raise Unreachable("the answer is no object")
        return answer

    def _open(self, timeout_s: float) -> Any:
        import http.client  # late: a job outside Swell never pays for it

        if self._settings.active_file:
            self._find()
        if self._target.scheme == "unix":
            self._connection = _over_socket(self._target.path, timeout_s)
            return self._connection
        secure = self._target.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._connection = kind(self._target.hostname or "127.0.0.1", self._target.port, timeout=timeout_s)
        return self._connection

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _over_socket(path: str, timeout_s: float) -> Any:
    """HTTP over the Unix socket of this machine's agent. By way of its directory: long paths do not fit."""
    import http.client
    import os
    import socket

    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout_s)
    try:
        directory, _, name = path.rpartition("/")
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            sock.connect(f"/proc/self/fd/{folder}/{name}")
        finally:
            os.close(folder)
    except OSError:
        sock.close()
        raise
    connection = http.client.HTTPConnection("localhost", timeout=timeout_s)
    connection.sock = sock
    return connection


class Link:
    """Starts with the first epoch. `place` and `position` are asked for at each message: they change."""

    def __init__(
        self,
        settings: Settings,
        gate: Gate,
        outbox: Outbox,
        place: Callable[[], Place],
        position: Callable[[], tuple[int, int]],
        idle: Callable[[], None],
    ) -> None:
        self.settings, self.gate, self.outbox = settings, gate, outbox
        self._place, self._position, self._idle = place, position, idle
        self.steps = False  # this rank can stop at a step
        self.epochs = 0
        self.terminating: Callable[[], bool] = lambda: False  # SIGTERM came: the ranks have to agree on where to stop
        self.healthy = True  # the last report arrived
        self.latency_s = 0.0
        self._report_s = 1.0
        self._flush = threading.Event()
        self._flushed = threading.Event()
        self._closing = False
        self._reported_position: tuple[int, int] | None = None

    def start(self) -> None:
        for name, work in (("swell-stop", self._poll_loop), ("swell-report", self._report_loop)):
            threading.Thread(target=work, name=name, daemon=True).start()

    def flush(self, budget_s: float) -> None:
        """Send what waits, now, and wait for it; but not for longer than `budget_s`."""
        self._flushed.clear()
        self._closing = True
        self._flush.set()
        self._flushed.wait(budget_s)

    def _poll_loop(self) -> None:
        channel, pause_s, asked = Channel(self.settings), FIRST_PAUSE_S, None
        while self.gate.agreed is None:
            word = self.gate.word()
            if word == asked:
                time.sleep(SAME_AGAIN_S)
                word = self.gate.word()
            asked = word
            try:
                answer = channel.call("GET", self._stop_path(*word), timeout_s=LONG_POLL_S + TIMEOUT_S)
                self._hear(answer.get("stop"))
                pause_s = FIRST_PAUSE_S
            except Exception:  # whatever it is, training must not notice
                channel.close()
                time.sleep(pause_s * _spread.uniform(0.5, 1.0))
                pause_s = min(MAX_PAUSE_S, pause_s * 2)
        channel.close()

    def _hear(self, stop: Any) -> None:
        if stop is None:
            self.gate.hear(None, False)
        else:
            epoch, step = stop["at"]
            self.gate.hear((int(epoch), int(step)), bool(stop["agreed"]))

    def _stop_path(self, begun: tuple[int, int], promised: tuple[int, int] | None) -> str:
        place = self._place()
        query = {
            "rank": place.rank,
            "world_size": place.world_size,
            "epoch": begun[0],
            "step": begun[1],
            "steps": int(self.steps),
            "epochs": self.epochs,
            "wait_s": LONG_POLL_S,
            "terminating": int(self.terminating()),
        }
        if promised is not None:
            query["ack_epoch"], query["ack_step"] = promised
        return f"/v1/runs/{self.settings.run}/stop?{urlencode(query)}"

    def _report_loop(self) -> None:
        """Rank 0 reports for the run; the other ranks only send their last report."""
        channel, pause_s = Channel(self.settings), FIRST_PAUSE_S
        self._flush.set()  # the first report, that training began, is not kept waiting
        while True:
            self._flush.wait(self._report_s if self.healthy else pause_s)
            self._flush.clear()
            closing = self._closing
            if self._due():
                arrived = self._report(channel)
                pause_s = FIRST_PAUSE_S if arrived else min(MAX_PAUSE_S, pause_s * 2)
            if closing:
                # Closed first: a socket left to the garbage collector may complain on stderr from this thread while the
                # interpreter shuts down, and that would abort the process.
                channel.close()
                self._flushed.set()
                return
            self._idle()

    def _due(self) -> bool:
        if self._closing:
            return True
        if self._place().rank != 0:
            return False  # its polls carry all that the daemon needs of this rank
        return not self.outbox.empty or self._position() != self._reported_position

    def _report(self, channel: Channel) -> bool:
        place, (_, promised) = self._place(), self.gate.word()
        parcel = self.outbox.take()
        position = self._position()
        body = {
            **parcel,
            "rank": place.rank,
            "world_size": place.world_size,
            "position": position,
            "ack": promised,
            "steps": self.steps,
            "terminating": self.terminating(),
        }
        began_s = time.monotonic()
        try:
            answer = channel.call("POST", f"/v1/runs/{self.settings.run}/report", body)
            self._report_s = min(60.0, max(0.2, float(answer.get("poll_s", 1.0))))
            self.healthy = True
            self._reported_position = position
        except Exception as error:  # whatever it is, training must not notice
            channel.close()
            if not isinstance(error, Refused):
                self.outbox.restore(parcel)
            self.healthy = False
        self.latency_s = time.monotonic() - began_s
        return self.healthy
