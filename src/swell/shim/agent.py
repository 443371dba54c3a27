"""The agent: what the daemon talks to on another machine. Standard library only, Python 3.8 or later.

It speaks `wire` over its standard input and output, whatever carries them, and calls `host` for each request. Runs do
not depend on it: they go on when the connection, or the agent, is gone, and the next agent finds them. Agents of two
versions live side by side, each with the files that it was delivered with (`<root>/<cluster>/agent/<hash>`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

from swell.shim import lease
from swell.shim.delivery import OF_JOBS, Deliveries
from swell.shim.files import Json, boot_id, boot_s, read_json, this_process
from swell.shim.host import Host, bind_notify, write
from swell.shim.inventory import read_machine
from swell.shim.obedience import Fenced, Obedience
from swell.shim.processes import send
from swell.shim.uplink import Uplink, socket_in
from swell.shim.wire import PROTOCOL, Broken, frame, read_frame

SILENCE_S = 180
"""An agent that receives nothing for so long has lost its daemon: it exits."""
THREADS = 8


class Late(Exception):
    """A request to start something that arrived after its lease was over, or for another boot."""


class Agent:
    """One per connection. `cluster` is the directory of this cluster on this machine."""

    def __init__(self, cluster: str, out: IO[bytes]) -> None:
        self._cluster = cluster
        self._out = out
        self._sending = threading.Lock()
        runs_dir = os.path.join(cluster, "runs")
        self._host = Host(runs_dir, [os.path.join(cluster, name) for name in OF_JOBS])
        self._deliveries = Deliveries(cluster)
        self._obedience = Obedience(os.path.join(cluster, "epoch"))
        self._uplink = Uplink(socket_in(cluster), self.send)
        self._pool = ThreadPoolExecutor(THREADS)

    def send(self, message: Json, data: bytes = b"") -> None:
        with self._sending:
            self._out.write(frame(message, data))
            self._out.flush()

    def serve(self, stream: IO[bytes], epoch: int) -> None:
        """Until the other side is gone."""
        try:
            self._obedience.announce(epoch)
        except Fenced as error:
            self.send({"error": str(error), "kind": "fenced"})
            return
        _replace_the_last(self._cluster)
        self._uplink.start()
        threading.Thread(target=self._hear, name="hints", daemon=True).start()
        self.send({"hello": self._hello()})
        self._pool.submit(self._warm)
        while True:
            signal.alarm(SILENCE_S)
            found = read_frame(stream)
            if found is None:
                return
            message, data = found
            if "stream" in message:
                self._uplink.answer(message, data)
            else:
                self._pool.submit(self._answer, message, data)

    def _hello(self) -> Json:
        python = sys.version.split()[0]
        where = {"cluster": self._cluster, "foreign": self._deliveries.foreign()}
        return {"protocol": PROTOCOL, "python": python, "boot": boot_id(), "now": boot_s(), **where}

    def _warm(self) -> None:
        with contextlib.suppress(OSError):
            self._host.nursery.warm()
            self._deliveries.sweep()

    def _hear(self) -> None:
        """Pass on the hints of shims."""
        heard = bind_notify(self._host.notify_path)
        heard.setblocking(True)
        while True:
            with contextlib.suppress(OSError):
                self.send({"heard": heard.recv(256).decode("ascii", "replace").partition("/")[0]})

    def _answer(self, message: Json, data: bytes) -> None:
        try:
            with self._obedience.obeyed(int(message["epoch"])):
                found, found_data = self._call(message, data)
            self.send({"id": message["id"], "ok": found}, found_data)
        except (Fenced, Late) as error:
            kind = "fenced" if isinstance(error, Fenced) else "late"
            self.send({"id": message["id"], "error": str(error), "kind": kind})
        except OSError as error:
            self.send({"id": message["id"], "error": str(error), "errno": error.errno, "kind": "refused"})
        except Exception as error:  # a bug of the agent, no answer about the run
            self.send({"id": message["id"], "error": repr(error), "kind": "broken"})

    def _call(self, message: Json, data: bytes) -> tuple[object, bytes]:
        name, run = message["call"], message.get("run", "")
        if name == "look":
            return self._look(message["runs"]), b""
        if name == "log":
            data, end, age_s = self._host.read_log(run, message["rank"], message["offset"], message["limit"])
            return {"end": end, "age_s": age_s}, data
        if name == "get":
            found = self._host.get(run, message["name"])
            return found is not None, found or b""
        if name == "read":
            asked = (message[key] for key in ("job", "below", "path", "offset", "limit"))
            data, size, inode = self._host.working_copies.read(*asked)
            return {"size": size, "inode": inode}, data
        if name == "checkpoint_read":
            return {}, self._host.checkpoints.read(message["job"], message["content"], message["offset"])
        return self._act(name, run, message, data), b""

    def _act(self, name: str, run: str, message: Json, data: bytes) -> object:
        host, deliveries = self._host, self._deliveries
        acts: dict[str, Callable[[], object]] = {
            "start": lambda: self._start(run, message["requests"], message["lease"]),
            "stop": lambda: host.stop(run, message["ranks"], message["kill"], message["whole"]),
            "force": lambda: host.force(run, message["ranks"]),
            "put": lambda: host.put(run, message["name"], data),
            "renew": lambda: self._renew(message),
            "inventory": lambda: read_machine(message["runtime"]),
            "log_since": lambda: host.log_since(run, message["rank"], message["age_s"]),
            "ports": lambda: host.ports(run, *(message[key] for key in ("first", "each", "low", "blocks"))),
            "remove": lambda: host.remove(message["job"]),
            "kept": host.kept,
            "tree": lambda: host.working_copies.tree(message["job"], message["below"]),
            "have": lambda: deliveries.have(message["name"]),
            "take": lambda: deliveries.take(message["name"], message["offset"], data, message["last"]),
            "prepare": lambda: deliveries.prepare(*(message[key] for key in ("job", "stamp", "files", "library"))),
            **self._checkpoint_acts(message, data),
        }
        if name not in acts:
            raise OSError(f"this agent (protocol {PROTOCOL}) does not know {name!r}")
        return acts[name]()

    def _checkpoint_acts(self, message: Json, data: bytes) -> dict[str, Callable[[], object]]:
        kept = self._host.checkpoints

        def of(*names: str) -> list[Any]:
            return [message[name] for name in ("job", *names)]

        return {
            "checkpoint_look": lambda: kept.look(*of("own", "named")),
            "checkpoint_mark": lambda: kept.mark(*of("own", "named", "nonce")),
            "checkpoint_set_aside": lambda: kept.set_aside(*of("own", "named", "over", "limit")),
            "checkpoint_arrived": lambda: kept.arrived(*of("content")),
            "checkpoint_take": lambda: kept.take(*[*of("content", "offset", "digest"), data]),
            "checkpoint_put_in_place": lambda: kept.put_in_place(*of("own", "named", "files")),
        }

    def _look(self, runs: dict[str, list[int]]) -> Json:
        """The clock is read first: a lease that is counted from it never ends later than the daemon thinks."""
        now_s = boot_s()
        return {"now": now_s, "boot": boot_id(), "running": self._host.running(), "runs": self._host.look(runs)}

    def _start(self, run: str, requests: list[Json], order: Json) -> None:
        if lease.order_left_s(order) <= 0:
            raise Late("the request to start arrived after its lease was over, or after a boot")
        self._host.start(run, [{**request, "lease": order} for request in requests])

    def _renew(self, message: Json) -> None:
        if not lease.renew(self._host.runs_dir, message["boot"], message["until"], int(message["epoch"])):
            raise Late("the renewal is for another boot")


def _replace_the_last(cluster: str) -> None:
    """End the agent before this one: it may hang on a connection that is dead but not closed."""
    path = os.path.join(cluster, "agent.json")
    last = read_json(path)
    if last and last.get("boot") == boot_id() and last.get("pid") != os.getpid():
        send(last["pid"], last["start"], signal.SIGTERM)
    write(path, json.dumps(this_process()).encode())


def main(cluster: str, request: Json) -> None:
    """Called by `boot` in the process that the daemon talks to. Nothing but frames may reach its standard output."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.chdir("/")
    with contextlib.suppress(BrokenPipeError, Broken):
        Agent(cluster, out).serve(sys.stdin.buffer, int(request["epoch"]))
    os._exit(0)  # without waiting for threads on a slow disk
