"""Stores to try the contract on, and a real PostgreSQL server of our own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.postgres_server import Server, server_or_skip


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with server_or_skip() as server:
        yield server


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
