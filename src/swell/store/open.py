"""Opens the store that a URL names. The daemon and `swell doctor` call it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from swell.core.errors import StoreError
from swell.store.dialect import Database
from swell.store.memory import MemoryStore
from swell.store.sql import SqlStore, new_cluster_id
from swell.store.sqlite import SqliteDatabase

SQLITE = "sqlite:///"
POSTGRES = ("postgresql://", "postgres://")


def open_store(url: str, *, holder: str = "") -> MemoryStore | SqlStore:
    """The store at `sqlite:///relative` or `sqlite:////absolute`, `postgresql://…` or `memory://`, ours to write.

    `holder` names this process to another one that finds the database taken, such as “the daemon at http://…”."""
    holder = holder or f"process {os.getpid()} on {socket.gethostname()}"
    if url == "memory://":
        return MemoryStore(new_cluster_id())
    return SqlStore(database_at(url, holder), holder)


def database_at(url: str, holder: str = "") -> Database:
    """The database that such a URL names, not opened yet."""
    if url.startswith(SQLITE) and len(url) > len(SQLITE):
        return SqliteDatabase(Path(url.removeprefix(SQLITE)), holder)
    if url.startswith(POSTGRES):
        from swell.store.postgres import PostgresDatabase  # its driver is an extra

        return PostgresDatabase(url)
    raise StoreError(
        f"{url!r} is not a database that Swell knows; write sqlite:///path, postgresql://user@host/name or memory://"
    )
