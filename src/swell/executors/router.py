"""The executor that the daemon uses: passes each command on to the executor that the run's nodes declare.

If a node is unknown, or declares an executor that this version does not have, the run is refused with a sentence; it
never runs elsewhere instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from swell.core.ids import JobId, RunId
from swell.core.observations import Observation
from swell.ports import Answer, Done, Executor, LogChunk, Order, Refused, Unknown

KINDS = {"local": "on the daemon's own machine", "ssh": "over SSH", "kubernetes": "as pods"}


class Router:
    """See `ports.Executor`. `executors`: by the name that nodes declare; one may have several names."""

    def __init__(self, executors: Mapping[str, Executor]) -> None:
        self._by_kind = dict(executors)
        self._all = list(dict.fromkeys(executors.values()))

    async def launch(self, order: Order) -> Answer:
        chosen = self._chosen(order)
        return chosen if isinstance(chosen, Refused) else await chosen.launch(order)

    async def resize(self, order: Order) -> Answer:
        chosen = self._chosen(order)
        return chosen if isinstance(chosen, Refused) else await chosen.resize(order)

    async def signal(self, run: RunId, *, kill: bool) -> Answer:
        """Signals through all executors: those that do not know the run do nothing."""
        return worst(await asyncio.gather(*(executor.signal(run, kill=kill) for executor in self._all)))

    async def remove(self, job: JobId) -> Answer:
        return worst(await asyncio.gather(*(executor.remove(job) for executor in self._all)))

    async def log(self, run: RunId, rank: int, offset: int, limit: int) -> LogChunk:
        """Reads from the executor that has the log."""
        chunks = [await executor.log(run, rank, offset, limit) for executor in self._all]
        return next((chunk for chunk in chunks if chunk.data or chunk.end), chunks[0])

    async def log_since(self, run: RunId, rank: int, age_s: float) -> int:
        """Asks all executors: those that do not have the log return 0."""
        return max([await executor.log_since(run, rank, age_s) for executor in self._all])

    async def observe(self, known: Sequence[RunId]) -> AsyncIterator[Observation]:
        """Observes all executors concurrently. If one ends, for any cause, this ends too, and the caller starts again.
        An executor is asked for its next observation only after the caller has handled the last one."""
        seen: asyncio.Queue[tuple[Observation, asyncio.Event] | None] = asyncio.Queue()
        watches = [asyncio.create_task(_pass_on(executor, known, seen)) for executor in self._all]
        try:
            while (item := await seen.get()) is not None:
                observation, noted = item
                yield observation
                noted.set()
        finally:
            for watch in watches:
                watch.cancel()
            ends = await asyncio.gather(*watches, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end

    def _chosen(self, order: Order) -> Executor | Refused:
        run = order.record.run
        assert run is not None
        found: dict[Executor, None] = {}
        for name in run.allocation.nodes:
            node = order.nodes.get(name)
            if node is None:
                return Refused(why=f"there is no machine called {name} any more; `swell nodes` lists those there are")
            executor = self._by_kind.get(node.executor)
            if executor is None:
                return Refused(why=_not_built(name, node.executor))
            found[executor] = None
        if len(found) > 1:
            kinds = ", ".join(sorted({node.executor for node in order.nodes.values()}))
            return Refused(why=f"a run cannot span machines of different kinds ({kinds}); ask for GPUs of one kind")
        return next(iter(found))


async def _pass_on(
    executor: Executor, known: Sequence[RunId], seen: asyncio.Queue[tuple[Observation, asyncio.Event] | None]
) -> None:
    try:
        async for item in executor.observe(known):
            noted = asyncio.Event()
            seen.put_nowait((item, noted))
            await noted.wait()
    finally:
        seen.put_nowait(None)


def _not_built(node: str, kind: str) -> str:
    how = f"{kind!r} ({KINDS[kind]})" if kind in KINDS else repr(kind)
    return f"machine {node} declares the executor {how}, which this version of Swell does not have; declare it `local`"


def worst(answers: Sequence[Answer]) -> Answer:
    """The answer to a command in several parts: Refused before Unknown before Done."""
    for kind in (Refused, Unknown):
        for answer in answers:
            if isinstance(answer, kind):
                return answer
    return Done()
