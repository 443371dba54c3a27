"""Two daemons of one database: one decides, the other waits for its turn. For the tests of failover, short and long."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
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


class Submitters:
    """Clients that submit one job after the other, each sent again under its key until it is accepted."""

    def __init__(self, pair: Pair, clients: int, mark: Path, pause_s: float) -> None:
        self._pair, self._mark, self._pause_s = pair, mark, pause_s
        self._over = threading.Event()
        self.accepted: dict[str, int] = {}  # id by key
        self.times: list[float] = []
        self.errors: list[str] = []
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
        while not self._over.is_set():
            key = f"{number}-{count}"
            self._submit(client, key)
            count += 1
            self._over.wait(self._pause_s)
        client.close()

    def stand(self, jobs: int, release: Path) -> None:
        """Submit so many jobs of one GPU that run, or wait for one, until this file is there."""
        client = self._pair.client()
        for number in range(jobs):
            self._submit(client, f"standing-{number}", f"until test -e {release}; do sleep 1; done", gpus=1)
        client.close()

    def _submit(self, client: Client, key: str, first: str = "true", gpus: int = 0) -> None:
        document = {"name": f"j-{key}", "command": f"{first}; echo {key} >> {self._mark}", "gpus": gpus}
        while True:
            try:
                made = client.submit(document, key=key)
            except DaemonUnreachable:
                continue
            except Refused as refused:
                if refused.status < 500:
                    self.errors.append(str(refused))
                    return
                time.sleep(0.05)
                continue
            self.accepted[key] = made["ids"][0]
            self.times.append(time.monotonic())
            return

    def longest_gap_s(self) -> float:
        times = sorted(self.times)
        return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)


def check(pair: Pair, submitters: Submitters, mark: Path) -> dict[str, Any]:
    """Every accepted submission is one job, which ran once; nothing else is there."""
    assert not submitters.errors, submitters.errors[:3]
    client = pair.client()

    def jobs() -> list[dict[str, Any]]:
        found, after = [], None
        while True:
            page, after = client.jobs(limit=500, **({"after": after} if after else {}))
            found += page
            if after is None:
                return found

    eventually(lambda: all(job["state"] == "completed" for job in jobs()), 240, what="all jobs have ended", every_s=1.0)
    listed = jobs()
    client.close()
    ran, known = Counter(mark.read_text().split()), Counter(job["name"].removeprefix("j-") for job in listed)
    accepted = set(submitters.accepted)
    return {
        "jobs": len(known),
        "lost": len(accepted - set(known)) + len(accepted - set(ran)),
        "double": sum(count > 1 for count in known.values()) + sum(count > 1 for count in ran.values()),
        "longest_gap_s": round(submitters.longest_gap_s(), 2),
    }
