"""Runs all background tasks of the daemon. The engine starts them here and nowhere else.

A task that dies, or returns although it should run until it is cancelled, is logged with its cause, shown in health and
by `swell doctor`, and started again after a pause that doubles with each death in a row. Cancellation passes through.
`StoreFenced` cannot be cured by a restart: the task stays down, and `lost` returns the error to its caller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from swell.core.errors import StoreFenced

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0
STEADY_S = 60.0
"""After a task has run for this long, its next pause is the first one again."""

Work = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The last death of a task. `down` until it has been started again."""

    task: str
    why: str
    deaths: int
    down: bool


class Supervisor:
    def __init__(self, *, first_pause_s: float = FIRST_PAUSE_S, max_pause_s: float = MAX_PAUSE_S) -> None:
        self._first_pause_s = first_pause_s
        self._max_pause_s = max_pause_s
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._work: dict[str, asyncio.Task[None]] = {}
        self._lost: StoreFenced | None = None
        self._lost_news = asyncio.Event()
        self.deaths: dict[str, Death] = {}

    def start(self, name: str, work: Work) -> None:
        """Run `work()` until `stop`; after each death it is called again."""
        assert name not in self._tasks, name
        self._tasks[name] = asyncio.create_task(self._keep(name, work), name=f"keep {name}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._tasks)

    def current(self, name: str) -> asyncio.Task[None] | None:
        """The task that does this work now; None while it waits to be started again."""
        return self._work.get(name)

    def down(self, name: str) -> bool:
        death = self.deaths.get(name)
        return death is not None and death.down

    async def lost(self) -> StoreFenced:
        """Returns when the database was lost to another daemon, with the error that names that daemon."""
        await self._lost_news.wait()
        assert self._lost is not None
        return self._lost

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        for task in self._tasks.values():
            with suppress(asyncio.CancelledError):
                await task
        self._tasks.clear()

    async def _keep(self, name: str, work: Work) -> None:
        loop = asyncio.get_running_loop()
        pause_s = self._first_pause_s
        while True:
            began_s = loop.time()
            error = await self._once(name, work)
            if self._lost is not None:
                return
            if loop.time() - began_s >= STEADY_S:
                pause_s = self._first_pause_s
            self._died(name, error, pause_s)
            del error  # its traceback would keep open what the dead task had opened
            await asyncio.sleep(pause_s)
            pause_s = min(self._max_pause_s, 2.0 * pause_s)
            death = self.deaths[name]
            self.deaths[name] = Death(task=name, why=death.why, deaths=death.deaths, down=False)

    async def _once(self, name: str, work: Work) -> BaseException | None:
        """Run the work to its end. Returns the exception that ended it, None if it just returned."""
        task = self._work[name] = asyncio.ensure_future(_run(work))
        try:
            await asyncio.wait({task})
        finally:
            del self._work[name]
            if not task.done():  # we are being stopped
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        if task.cancelled():
            return asyncio.CancelledError("it was cancelled from outside")
        error = task.exception()
        if isinstance(error, StoreFenced):
            self._lost = error
            self._lost_news.set()
        return error

    def _died(self, name: str, error: BaseException | None, pause_s: float) -> None:
        why = "it returned, although it should never end" if error is None else _cause(error)
        before = self.deaths.get(name)
        self.deaths[name] = Death(task=name, why=why, deaths=1 + (before.deaths if before else 0), down=True)
        log.error("task %s died and is started again in %.1f s: %s", name, pause_s, why, exc_info=error)


async def _run(work: Work) -> None:
    await work()


def _cause(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
