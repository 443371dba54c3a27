"""Waiting for a database that another daemon writes to, and taking it over when that one is gone.

It is gone when its session is (the server drops the session's lock), or when it has given no sign of life for
`PATIENCE_S` although the database answers: it hangs, is suspended, or has lost the database. Then its session is ended.
A mistake about that loses nothing: each write checks the store's epoch, so that a daemon that wakes up late finds the
database taken, writes nothing and ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from swell.core.errors import StoreBusy
from swell.store import rows
from swell.store.postgres import LOCK_KEY, PostgresDatabase
from swell.store.sql import SqlStore, taken_over

PATIENCE_S = 5.0
"""A daemon gives a sign of life every second (`SqlStore.give_sign`)."""
_HIGH, _LOW = LOCK_KEY >> 32, LOCK_KEY & 0xFFFFFFFF
_END_HOLDER = (
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 "
    "AND classid = %s AND objid = %s AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """What the database says of who writes to it. `since` changes with each sign of life."""

    epoch: int
    since: str
    holder: str


class Patience:
    """Judges by our own clock alone: clocks of two machines may differ. Pure but for the clock it is handed."""

    def __init__(self, now_s: Callable[[], float], patience_s: float = PATIENCE_S) -> None:
        self._now_s = now_s
        self._patience_s = patience_s
        self._last: tuple[Sign, float] | None = None

    def is_over(self, sign: Sign) -> bool:
        """Take the sign that was just read. True: it has not changed for `PATIENCE_S`, so its daemon must be gone."""
        if self._last is None or self._last[0] != sign:
            self._last = sign, self._now_s()
        return self._now_s() - self._last[1] >= self._patience_s

    def begin_anew(self) -> None:
        """The database did not answer: while no daemon can write, silence of one proves nothing."""
        self._last = None


class Succession:
    """`look` once in a while, from one thread; it returns the store once it is ours."""

    def __init__(
        self,
        database: PostgresDatabase,
        holder: str,
        *,
        now_s: Callable[[], float] = time.monotonic,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._database = database
        self._holder = holder
        self._patience = Patience(now_s, patience_s)
        self._connection: Any = None

    def look(self) -> SqlStore | None:
        """Raises StoreError if the database does not answer, or must not be opened."""
        try:
            if not self._is_free():
                sign = self._sign()
                if sign is None or not self._patience.is_over(sign):
                    return None
                self._connection.execute(_END_HOLDER, (_HIGH, _LOW))
        except Exception as error:
            self.close()
            self._patience.begin_anew()
            raise self._database.explain(error) or error from error
        return self._opened()

    def _opened(self) -> SqlStore | None:
        self.close()  # or our own session would be in the way
        try:
            return SqlStore(self._database, self._holder)
        except StoreBusy:  # the other one was quicker, or it is alive after all
            self._patience.begin_anew()
            return None

    def _is_free(self) -> bool:
        if self._connection is None:
            self._connection = self._database.connect()
        return bool(self._connection.execute("SELECT pg_try_advisory_lock(%s)", (LOCK_KEY,)).fetchone()[0])

    def _sign(self) -> Sign | None:
        """None: whoever has the lock has not made the tables yet."""
        if self._connection.execute("SELECT to_regclass('writer')").fetchone()[0] is None:
            return None
        epoch, since, holder = self._connection.execute("SELECT epoch, since, holder FROM writer").fetchone()
        return Sign(epoch=int(epoch), since=str(since), holder=str(holder))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # what is wrong with it is being reported already
                connection.close()


class Signs:
    """Signs of life of the daemon that has the database, for those who wait for it. From one thread at a time."""

    def __init__(self, database: PostgresDatabase, epoch: int) -> None:
        self._database = database
        self._epoch = epoch
        self._connection: Any = None

    def give(self) -> None:
        """Raises StoreFenced if the database is no longer ours, another StoreError if it does not answer."""
        try:
            if self._connection is None:
                self._connection = self._database.connect()
                self._connection.silence_s = PATIENCE_S
                self._connection.execute("SET synchronous_commit = off")  # a sign that a crash of the server takes back
            row = (rows.when(time.time()), self._epoch)
            given = self._connection.execute("UPDATE writer SET since = %s WHERE epoch = %s", row).rowcount
            holder = "" if given else str(self._connection.execute("SELECT holder FROM writer").fetchone()[0])
        except Exception as error:
            self.close()
            raise self._database.explain(error) or error from error
        if not given:
            raise taken_over(self._database.where, holder)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()
