"""An event loop on virtual time: sleeping costs nothing, threads are function calls, and every run is the same.

No socket, no thread, no clock of the machine: what runs on it depends on nothing but its own inputs.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Mapping
from typing import Any


class Stuck(Exception):
    """Every task waits for another one: nothing will ever happen."""


class _NoFiles(selectors.BaseSelector):
    """Waiting for input moves the clock to the next timer instead."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stuck
        self.now_s += max(0.0, timeout)
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> Any:
        raise AssertionError("no files on virtual time")

    def unregister(self, fileobj: Any) -> Any:
        raise AssertionError("no files on virtual time")

    def get_map(self) -> Mapping[Any, Any]:
        return {}


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._files = _NoFiles()
        super().__init__(self._files)

    def time(self) -> float:
        return self._files.now_s

    def _make_self_pipe(self) -> None: ...

    def _close_self_pipe(self) -> None: ...

    def _write_to_self(self) -> None: ...

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """At once, and in this thread; its result arrives with the next turn of the loop, as from a thread."""
        done: asyncio.Future[Any] = self.create_future()
        try:
            found = func(*args)
        except Exception as error:
            self.call_soon(_fail, done, error)
        else:
            self.call_soon(_finish, done, found)
        return done


def _finish(done: asyncio.Future[Any], found: object) -> None:
    if not done.done():
        done.set_result(found)


def _fail(done: asyncio.Future[Any], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
