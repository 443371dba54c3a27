"""Stores to try the contract on, and a real PostgreSQL server of our own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.postgres_server import Server, binaries, running_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
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


@pytest.fixture(params=["sqlite", "postgresql"])
def sql_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new, empty database of each kind that lasts."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'swell.db'}"
    server: Server = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new, empty store of each kind."""
    if request.param == "memory":
        return "memory://"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'swell.db'}"
    server: Server = request.getfixturevalue("postgres")
    return server.new_database()
