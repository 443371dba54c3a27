"""A standby takes over when the active daemon dies, hangs or loses its database, and nothing is lost or done twice.

`make test` plays three kills and a suspended daemon; SWELL_CHAOS=full fifty kills with eight clients and 200 jobs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from contract.postgres_server import Server, server_or_skip
from harness import end_runs, eventually
from integration.daemon.failover import Member, Pair, Submitters, check, pair

FULL = os.environ.get("SWELL_CHAOS") == "full"
KILLS, CLIENTS, PAUSE_S = (50, 8, 2.0) if FULL else (3, 3, 0.5)
STANDING = 200 if FULL else 8
TAKE_OVER_S = 60
"""Room for a loaded machine; how long it took is printed."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with server_or_skip() as one:
        yield one


@pytest.fixture
def two(server: Server, tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path, server.new_database()) as both:
        yield both


def becomes_active(member: Member) -> None:
    eventually(lambda: member.role() == "active", TAKE_OVER_S, what=f"the standby takes over; it said {member.said()}")


def stands_by(member: Member) -> None:
    eventually(lambda: member.role() == "standby", 60, what="the other one stands by")


def goes_on(submitters: Submitters) -> None:
    before = len(submitters.times)
    eventually(lambda: len(submitters.times) > before + CLIENTS, 60, what="submissions are accepted")


def test_whoever_kills_the_active_daemon_never_loses_or_doubles_a_job(two: Pair, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    gaps: list[float] = []
    release = tmp_path / "release"
    with Submitters(two, CLIENTS, mark, pause_s=PAUSE_S) as submitters:
        submitters.stand(STANDING, release)
        for _ in range(KILLS):
            victim = two.active()
            successor = two.other(victim)
            stands_by(successor)
            goes_on(submitters)
            killed_s = time.monotonic()
            victim.kill()
            becomes_active(successor)
            gaps.append(time.monotonic() - killed_s)
            victim.start()
    release.touch()
    found = check(two, submitters, mark)
    print(
        json.dumps(
            {
                **found,
                "kills": KILLS,
                "clients": CLIENTS,
                "standing": STANDING,
                "load": os.getloadavg(),
                "take_over_s": sorted(round(g, 2) for g in gaps),
            }
        )
    )
    assert (found["lost"], found["double"]) == (0, 0), found
    assert found["longest_gap_s"] < 30.0, found


def test_a_suspended_daemon_that_wakes_up_writes_nothing_and_ends_with_a_sentence(two: Pair, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    stale = two.active()
    fresh = two.other(stale)
    with Submitters(two, 2, mark, pause_s=0.5) as submitters:
        goes_on(submitters)
        assert stale.process is not None
        stopped_s = time.monotonic()
        stale.process.send_signal(signal.SIGSTOP)
        stale.hang_up()
        becomes_active(fresh)
        took_over_s = time.monotonic() - stopped_s
        goes_on(submitters)  # clients follow
        stale.process.send_signal(signal.SIGCONT)
        assert stale.process.wait(timeout=60) != 0
    said = stale.said()
    assert "has been taken over by the daemon at" in said
    assert "Traceback" not in said
    found = check(two, submitters, mark)
    print(json.dumps({**found, "suspended": True, "take_over_s": round(took_over_s, 2), "load": os.getloadavg()}))
    assert (found["lost"], found["double"]) == (0, 0), found


@pytest.fixture
def link(server: Server) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A port that leads to the server, and the process that a cut of the network suspends."""
    port = free_port()
    process = subprocess.Popen([sys.executable, str(Path(__file__).with_name("relay.py")), str(port), str(server.port)])
    eventually(lambda: answers(port), 20, what="the relay listens")
    yield port, process
    process.kill()
    process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def test_a_daemon_that_is_cut_off_from_its_database_says_so_and_ends_when_it_learns_of_its_successor(
    server: Server, tmp_path: Path, link: tuple[int, subprocess.Popen[bytes]]
) -> None:
    """Also when it has nothing to write: nothing is refused, connections stand, and yet it decides nothing any more."""
    port, relay = link
    direct = server.new_database()
    by_link = direct.replace(f":{server.port}/", f":{port}/")
    args = ("--standby", "--shared", str(tmp_path / "shared"), "--database")
    cut_off, fresh = Member(tmp_path / "a", args=(*args, by_link)), Member(tmp_path / "b", args=(*args, direct))
    try:
        cut_off.start()
        becomes_active(cut_off)
        fresh.start()
        stands_by(fresh)
        relay.send_signal(signal.SIGSTOP)
        cut_s = time.monotonic()
        eventually(lambda: not cut_off.get("/v1/health")["ready"], 30, what="it says that it decides nothing")
        told_s = time.monotonic() - cut_s
        assert "cannot be reached" in cut_off.get("/v1/health")["degraded"]
        becomes_active(fresh)
        print(json.dumps({"cut_off_says_so_s": round(told_s, 1), "load": os.getloadavg()}))
        relay.send_signal(signal.SIGCONT)
        assert cut_off.process is not None
        assert cut_off.process.wait(timeout=60) != 0
        assert "has been taken over by the daemon at" in cut_off.said()
        assert fresh.role() == "active"
    finally:
        for member in (cut_off, fresh):
            if member.process is not None and member.process.poll() is None:
                member.kill()
            member.hang_up()
            end_runs(member.home)


def test_a_standby_says_what_it_is_and_where_to_ask(two: Pair) -> None:
    active = two.active()
    standby = two.other(active)
    health = standby.get("/v1/health")
    host, port = active.address
    assert (health["role"], health["ready"], health["active"]) == ("standby", False, f"http://{host}:{port}")
    status, problem = standby.request("GET", "/v1/jobs")
    assert (status, problem["title"]) == (503, "Standby")
    assert f"http://{host}:{port}" in problem["detail"]
    assert standby.stop() == 0  # it leaves at once, and nothing has happened to the active one
    assert active.role() == "active"
