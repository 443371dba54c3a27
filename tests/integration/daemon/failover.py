"""Two daemons of one database: one decides, the other waits for its turn. For the tests of failover, short and long."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import Daemon, end_runs, eventually
from swell.client.errors import DaemonUnreachable, Refused
from swell.client.find import Address
from swell.client.http import Client


class Member(Daemon):
    """A daemon that may be a standby: it counts as started when it answers, whatever its role."""

    def role(self) -> str:
        """Empty: it does not answer."""
        with suppress(OSError, AssertionError, ValueError, KeyError):
            return str(self.get("/v1/health")["role"])
        return ""

    def _answers(self) -> bool:
        if self.process is not None and self.process.poll() is not None:
            raise AssertionError(f"the daemon ended with {self.process.returncode}: {self.said()}")
        return bool(self.role())


@dataclass
class Pair:
    members: list[Member]
    shared: Path
    urls: list[str] = field(default_factory=list)

    def active(self) -> Member:
        eventually(lambda: any(member.role() == "active" for member in self.members), 60, what="one is active")
        return next(member for member in self.members if member.role() == "active")

    def other(self, member: Member) -> Member:
        return next(one for one in self.members if one is not member)

    def client(self) -> Client:
        token = (self.shared / "token").read_text().strip()
        return Client(Address(url=self.urls[0], others=tuple(self.urls[1:]), token=token, local=False))


@contextmanager
def pair(folder: Path, database: str, gpus: int = 4, env: Mapping[str, str] | None = None) -> Iterator[Pair]:
    """Both with `--standby`: whichever is first has the work. On ports that stay, as an operator would set them."""
    shared = folder / "shared"
    args = ("--standby", "--shared", str(shared), "--database", database)
    members = [Member(folder / name, gpus=gpus, args=args, env=env) for name in ("a", "b")]
    found = Pair(members=members, shared=shared)
    try:
        for member in members:
            member.start()
            host, port = member.address
            found.urls.append(f"http://{host}:{port}")
        yield found
    finally:
        for member in members:
            if member.process is not None and member.process.poll() is None:
                with suppress(ProcessLookupError):
                    member.process.send_signal(signal.SIGCONT)
                member.kill()
            member.hang_up()
        end_runs(shared)


KEEP = 25
"""Jobs of each client that wait or run at most: beyond them it cancels its oldest. So there is as much to run as the
machine can do, however slow it is, and no more: 200 jobs with 8 clients."""


class Submitters:
    """Clients that submit one job after the other, each sent again under its key until it is accepted."""

    def __init__(self, pair: Pair, clients: int, mark: Path, pause_s: float) -> None:
        self._pair, self._mark, self._pause_s = pair, mark, pause_s
        self._over = threading.Event()
        self.accepted: dict[str, int] = {}  # id by key
        self.times: list[float] = []
        self.errors: list[str] = []
        self.given_up: dict[int, None] = {}  # ids of jobs that their client asked to be cancelled
        self._threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(clients)]

    def __enter__(self) -> Submitters:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(120)

    def _run(self, number: int) -> None:
        client, count = self._pair.client(), 0
        standing: deque[int] = deque()
        while not self._over.is_set():
            if len(standing) == KEEP:
                self._cancel(client, standing.popleft())
            key = f"{number}-{count}"
            self._submit(client, key)
            standing.append(self.accepted[key])
            count += 1
            self._over.wait(self._pause_s)
        client.close()

    def _submit(self, client: Client, key: str) -> None:
        document = {"name": f"j-{key}", "command": f"echo {key} >> {self._mark}", "gpus": 0}
        self.accepted[key] = self._until_accepted(lambda: client.submit(document, key=key))["ids"][0]
        self.times.append(time.monotonic())

    def _cancel(self, client: Client, job: int) -> None:
        """If it has not ended; that it has is no error."""
        self.given_up[job] = None
        self._until_accepted(lambda: client.request_json("POST", "/v1/jobs/cancel", {"jobs": [job]}))

    def _until_accepted(self, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        while True:
            try:
                return ask()
            except DaemonUnreachable:
                continue
            except Refused as refused:
                if refused.status < 500:
                    self.errors.append(str(refused))
                    raise
                time.sleep(0.05)

    def standing(self) -> int:
        """Jobs that were accepted and that nobody has given up."""
        return len(self.accepted) - len(self.given_up)

    def longest_gap_s(self) -> float:
        times = sorted(self.times)
        return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)


def check(pair: Pair, submitters: Submitters, mark: Path) -> dict[str, Any]:
    """Every accepted submission is one job, which ran once, or not if it was given up; nothing else is there."""
    assert not submitters.errors, submitters.errors[:3]
    client = pair.client()

    def jobs() -> list[dict[str, Any]]:
        found, after = [], None
        while True:
            page, after = client.jobs(limit=500, **({"after": after} if after else {}))
            found += page
            if after is None:
                return found

    ends = ("completed", "cancelled")
    eventually(lambda: all(job["state"] in ends for job in jobs()), 240, what="all jobs have ended", every_s=1.0)
    listed = jobs()
    client.close()
    ran, known = Counter(mark.read_text().split()), Counter(job["name"].removeprefix("j-") for job in listed)
    accepted = set(submitters.accepted)
    unwanted = {job["name"].removeprefix("j-") for job in listed if job["state"] == "cancelled"}
    given_up = {key for key, job in submitters.accepted.items() if job in submitters.given_up}
    return {
        "jobs": len(known),
        "ran": len(ran),
        "lost": len(accepted - set(known)) + len(accepted - unwanted - set(ran)) + len(unwanted - given_up),
        "double": sum(count > 1 for count in known.values()) + sum(count > 1 for count in ran.values()),
        "longest_gap_s": round(submitters.longest_gap_s(), 2),
    }
