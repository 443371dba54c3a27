"""A real daemon whose database goes away and comes back, for short and for long: it heals by itself and loses nothing.

`make test` plays short outages; SWELL_CHAOS=full those of up to two minutes."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from contract.postgres_server import Server, server_or_skip
from harness import Daemon, daemon, eventually
from swell.store.open import open_store

LENGTHS_S = (1, 5, 20, 60, 120) if os.environ.get("SWELL_CHAOS") == "full" else (1,)
JOBS = 3


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Of our own: it is killed."""
    with server_or_skip() as one:
        yield one


def send(server: Server, number: signal.Signals) -> None:
    """To the server and its helpers."""
    postmaster = int((server.directory / "data" / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    for pid in (postmaster, *map(int, children)):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def begin(server: Server, how: str) -> None:
    if how == "stopped":
        server.stop("fast")
    else:  # SIGKILL: as a power cut would; SIGSTOP: connections stay open and nobody answers, as when a network is cut
        send(server, signal.SIGKILL if how == "killed" else signal.SIGSTOP)


def back(server: Server, how: str) -> None:
    """Its last process may need a moment to be gone."""
    if how == "hangs":
        send(server, signal.SIGCONT)
        return
    deadline = time.monotonic() + 20
    while True:
        try:
            server.start()
        except subprocess.SubprocessError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def waits_for(go: Path, mark: Path) -> str:
    return f"while [ ! -e {go} ]; do sleep 0.05; done; echo done >> {mark}"


def submit(served: Daemon, key: str, command: str = "true") -> int:
    body = {"name": key, "command": command, "gpus": 0}
    status, _ = served.request("POST", "/v1/jobs", body, {"Idempotency-Key": key})
    return status


def state_of(served: Daemon, job: int) -> str:
    return str(served.get(f"/v1/jobs/{job}")["state"])


def all_once(served: Daemon, names: set[str]) -> bool:
    jobs = served.get("/v1/jobs?limit=200")["jobs"]
    assert sorted(job["name"] for job in jobs) == sorted(names)
    return all(job["state"] == "completed" and job["attempts"] == 1 for job in jobs)


@pytest.mark.parametrize("length_s", LENGTHS_S)
@pytest.mark.parametrize("how", ["killed", "stopped", "hangs"])
def test_an_outage_of_postgresql_heals_by_itself_and_loses_nothing(
    server: Server, tmp_path: Path, how: str, length_s: float
) -> None:
    go, mark = tmp_path / "go", tmp_path / "mark"
    with daemon(tmp_path / "home", args=("--database", server.new_database())) as served:
        for number in range(JOBS):
            assert submit(served, f"before-{number}", waits_for(go, mark)) == 201
        eventually(lambda: served.get("/v1/health")["jobs"].get("running") == JOBS, 20)
        begin(server, how)
        gone_s = time.monotonic()
        go.touch()  # runs end while nothing can be recorded
        assert submit(served, "meanwhile-0") >= 500
        eventually(lambda: not served.get("/v1/health")["ready"], 10, what="health says that nothing can be written")
        assert "cannot be reached" in served.get("/v1/health")["degraded"]
        eventually(lambda: mark.exists() and len(mark.read_text().split()) == JOBS, 20)
        while time.monotonic() - gone_s < length_s:
            assert submit(served, "meanwhile-1") >= 500
            assert not served.get("/v1/health")["ready"]
            time.sleep(min(1.0, length_s / 4))
        back(server, how)
        eventually(lambda: served.get("/v1/health")["ready"], 20, what="it heals by itself")
        assert served.get("/v1/health")["degraded"] == ""
        for key in ("meanwhile-0", "meanwhile-1", "after"):
            assert submit(served, key) == 201
        names = {"meanwhile-0", "meanwhile-1", "after", *(f"before-{number}" for number in range(JOBS))}
        eventually(lambda: all_once(served, names), 30, what="everything has ended, once")
        assert len(mark.read_text().split()) == JOBS
        served.stop()
        served.start()
        assert all_once(served, names)


def test_an_outage_without_a_write_in_it_is_not_even_noticed(server: Server, tmp_path: Path) -> None:
    with daemon(tmp_path / "home", args=("--database", server.new_database())) as served:
        server.stop("fast")
        back(server, "stopped")
        eventually(lambda: submit(served, "after") == 201, 10)
        eventually(lambda: all_once(served, {"after"}), 20)


def test_a_daemon_whose_database_was_taken_over_ends_says_so_and_leaves_jobs_running(
    server: Server, tmp_path: Path
) -> None:
    import psycopg

    url, go, mark = server.new_database(), tmp_path / "go", tmp_path / "mark"
    with daemon(tmp_path / "home", args=("--database", url)) as served:
        assert submit(served, "long", waits_for(go, mark)) == 201
        eventually(lambda: served.get("/v1/health")["jobs"].get("running") == 1, 20)
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            name = url.rpartition("/")[2]
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        with closing(open_store(url, holder="the new daemon")):
            assert submit(served, "stale") >= 500
            assert served.process is not None
            assert served.process.wait(timeout=20) != 0
            served.stop()  # hangs up
        assert "taken over by the new daemon" in served.said()
        assert "Traceback" not in served.said()
        assert "taken over by the new daemon" in (served.home / "daemon.log").read_text()
        go.touch()
        eventually(mark.exists, 10, what="the job goes on to its end")


# -- SQLite -----------------------------------------------------------------------------------------------------------


def plays_through(served: Daemon, go: Path, mark: Path, *, said: str) -> None:
    """The outage has begun: runs end in it, and all is refused until `mend` is called by whoever reads on."""
    go.touch()
    eventually(lambda: submit(served, "meanwhile") >= 500, 20)
    eventually(lambda: not served.get("/v1/health")["ready"], 10)
    assert said in served.get("/v1/health")["degraded"]
    eventually(mark.exists, 10)


def goes_on(served: Daemon) -> None:
    eventually(lambda: served.get("/v1/health")["ready"], 20, what="it heals by itself")
    assert submit(served, "meanwhile") == 201
    eventually(lambda: all_once(served, {"before", "meanwhile"}), 20)


def test_a_database_locked_by_somebody_else_is_waited_for(tmp_path: Path) -> None:
    go, mark = tmp_path / "go", tmp_path / "mark"
    with daemon(tmp_path / "home") as served:
        assert submit(served, "before", waits_for(go, mark)) == 201
        eventually(lambda: served.get("/v1/health")["jobs"].get("running") == 1, 20)
        with closing(sqlite3.connect(served.home / "swell.db", isolation_level=None)) as shell:
            shell.execute("BEGIN IMMEDIATE")
            plays_through(served, go, mark, said="locked by another program")
        goes_on(served)


def test_errors_of_the_disk_are_outlived(tmp_path: Path) -> None:
    """Injected by a limit on the size of files that the daemon writes: SQLite sees an input/output error."""
    go, mark = tmp_path / "go", tmp_path / "mark"
    with daemon(tmp_path / "home") as served:
        assert submit(served, "before", waits_for(go, mark)) == 201
        eventually(lambda: served.get("/v1/health")["jobs"].get("running") == 1, 20)
        assert served.process is not None
        pid = served.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (1024, resource.RLIM_INFINITY))
        plays_through(served, go, mark, said="nothing can be written or decided")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        goes_on(served)
