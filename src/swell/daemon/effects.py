"""What the daemon does to the world, after the decision is on disk. Every effect may be repeated without harm."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from swell.core.ids import RunId
from swell.core.state import JobRecord
from swell.plan.deadlines import Force
from swell.ports import Executor, Launch, RunGone, start_failure

log = logging.getLogger(__name__)

LAUNCHES_AT_ONCE = 8
"""On one node. A node that is slow to start a run delays those that wait for the same node, and nobody else."""


class Effects:
    """Launches, resizes and signals runs; each in a task of its own, so that a slow node delays nobody else."""

    def __init__(
        self,
        executor: Executor,
        launch_of: Callable[[JobRecord], Launch],
        failed: Callable[[RunGone], Awaitable[None]],
        now_s: Callable[[], float],
    ) -> None:
        self._executor = executor
        self._launch_of = launch_of
        self._failed = failed
        self._now_s = now_s
        self._slots: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(LAUNCHES_AT_ONCE))
        self._pushed: dict[RunId, Force] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def launch(self, record: JobRecord) -> None:
        self._spawn(self._launch(record))

    async def _launch(self, record: JobRecord) -> None:
        assert record.run is not None
        async with AsyncExitStack() as slots:
            # In order of name: two runs that need the same nodes never wait for each other.
            for node in sorted(record.run.allocation.nodes):
                await slots.enter_async_context(self._slots[node])
            try:
                # In a thread: a job's copy of its files is made here, and may be large.
                await self._executor.launch(await asyncio.to_thread(self._launch_of, record))
            except Exception as error:
                log.exception("run %s could not be started", record.run.id)
                gone = RunGone(
                    run=record.run.id,
                    reason=start_failure(error.errno if isinstance(error, OSError) else None),
                    at_s=self._now_s(),
                    message=f"could not be started: {error}",
                )
                await self._failed(gone)

    def resize(self, record: JobRecord) -> None:
        self._spawn(self._resize(record))

    async def _resize(self, record: JobRecord) -> None:
        assert record.run is not None
        await self._executor.resize(self._launch_of(record), record.run.allocation)

    def push(self, run: RunId, force: Force) -> None:
        """Signal a stopping run, once for each degree of force."""
        if self._pushed.get(run, Force.ASK) >= force:
            return
        self._pushed[run] = force
        self._spawn(self._executor.signal(run, kill=force is Force.KILL))

    def pushed(self, run: RunId) -> Force:
        return self._pushed.get(run, Force.ASK)

    def ended(self, run: RunId) -> None:
        self._pushed.pop(run, None)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(self._guard(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception:
            log.exception("an effect failed; the next pass tries again")

    @property
    def under_way(self) -> bool:
        return bool(self._tasks)

    async def settle(self) -> None:
        """Wait for effects under way: at a graceful stop nothing is left half done."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
