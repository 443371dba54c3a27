"""A private PostgreSQL server for a test session, of the binaries that are on this machine."""

from __future__ import annotations

import glob
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_START_S = 30


def binaries() -> Path | None:
    """Where initdb and postgres are; Debian keeps them out of PATH."""
    places = [Path(found).resolve().parent for name in ("initdb",) if (found := shutil.which(name))]
    places += [Path(one) for one in sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)]
    return next((one for one in places if (one / "initdb").exists() and (one / "postgres").exists()), None)


def _user() -> str | None:
    """Whom to become: PostgreSQL refuses to run as root. None: stay who we are."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in known)


class Server:
    def __init__(self, directory: Path, bin_dir: Path) -> None:
        self.directory, self._bin, self._user = directory, bin_dir, _user()
        self.port = _free_port()
        self._numbers = itertools.count(1)
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        if self._user is not None:
            shutil.chown(directory, self._user)
        self._run("initdb", "-D", "data", "-A", "trust", "-U", "swell", "--no-sync", "-E", "UTF8", "--locale", "C")

    def _run(self, name: str, *args: str) -> None:
        subprocess.run(
            [str(self._bin / name), *args],
            cwd=self.directory,
            user=self._user,
            extra_groups=None if self._user is None else [],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_START_S * 2,
        )

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.directory} -c shared_buffers=16MB"
        self._run("pg_ctl", "-D", "data", "-l", "log", "-w", "-t", str(_START_S), "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", "data", "-w", "-m", mode, "stop")

    def new_database(self) -> str:
        import psycopg

        name = f"t{next(self._numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)

    def url(self, name: str) -> str:
        return f"postgresql://swell@127.0.0.1:{self.port}/{name}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running_server(directory: Path, bin_dir: Path) -> Iterator[Server]:
    server = Server(directory, bin_dir)
    server.start()
    postmaster = int((directory / "data" / "postmaster.pid").read_text().split()[0])
    try:
        yield server
    finally:
        try:
            server.stop()
        except subprocess.SubprocessError:
            os.kill(postmaster, signal.SIGQUIT)


@contextmanager
def server_or_skip() -> Iterator[Server]:
    """A server in a directory of its own; the test is skipped where there is none to be had."""
    pytest.importorskip("psycopg", reason="psycopg (the extra swell[postgres]) is not installed")
    bin_dir = binaries()
    if bin_dir is None:
        pytest.skip("no PostgreSQL binaries (initdb, postgres) on PATH or under /usr/lib/postgresql")
    # not under tmp_path: its parents are closed to the user that the server runs as
    directory = Path(tempfile.mkdtemp(prefix="swell-pg-"))
    directory.chmod(0o755)
    try:
        with running_server(directory, bin_dir) as server:
            yield server
    finally:
        shutil.rmtree(directory, ignore_errors=True)
