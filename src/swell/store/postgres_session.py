"""A session of a PostgreSQL server with a time-out for every statement. psycopg alone waits as long as the connection
exists: with a server that hangs, or a network that was cut, that is a quarter of an hour and longer."""

from __future__ import annotations

import time
from typing import Any

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.rows import TupleRow

SILENCE_S = 20.0
"""A statement fails after this long without traffic."""


class Session(psycopg.Connection[TupleRow]):
    silence_s: float | None = SILENCE_S
    """None: statements may take their time, as changes of large tables do."""

    def wait(self, gen: PQGen[RV], *args: Any, **options: Any) -> RV:
        bounded = gen if self.silence_s is None else _bounded(gen, self.silence_s)
        return super().wait(bounded, *args, **options)


def _bounded(gen: PQGen[RV], silence_s: float) -> PQGen[RV]:
    """The same exchange with the server, broken off by an error once it is silent. psycopg says several times a second
    that nothing is ready."""
    heard_s = time.monotonic()
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            now_s = time.monotonic()
            if ready:
                heard_s = now_s
            elif now_s - heard_s > silence_s:
                raise psycopg.OperationalError(f"it has not answered for {silence_s:.0f} s")
            wanted = gen.send(ready)
    except StopIteration as end:
        value: RV = end.value
        return value
