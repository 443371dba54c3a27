"""Sends the commands of a decision (launch, resize, signal) to the executor, after the decision is on disk.

A command is owed until the executor answers done or refused, or until it is obsolete: the run has ended, or it was
stopped before its launch was answered. After the answer unknown it is sent again, after a delay or as soon as one of
its machines is back. Every command is idempotent. Called by the passes and the engine, from their loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field

from swell.core.exits import reason_not_started
from swell.core.ids import RunId
from swell.core.observations import RunGone
from swell.core.state import JobRecord, State
from swell.plan.deadlines import Force
from swell.ports import Answer, Done, Executor, Order, Refused, Unknown

log = logging.getLogger(__name__)

LAUNCHES_AT_ONCE = 8
"""Maximum launches at a time per node. A slow node delays only the runs that wait for it."""
RETRY_S, MAX_RETRY_S = 1.0, 30.0
"""Delay before an unanswered command is sent again; it doubles with each attempt."""


@dataclass(slots=True)
class _Owed:
    """The commands that one run is still owed, and what was sent already."""

    nodes: tuple[str, ...] = ()
    launch: Order | None = None
    tried: bool = False  # the executor was asked to launch it, and reports about it from then on
    resize: Order | None = None
    force: Force = Force.ASK  # wanted
    sent: Force = Force.ASK  # may have reached the run, with or without an answer
    answered: Force = Force.ASK
    over: bool = False
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    @property
    def pending(self) -> bool:
        return not self.over and bool(self.force > self.answered or self.launch or self.resize)


class Effects:
    """One task per run with commands owed, so that a machine that does not answer delays no other run."""

    def __init__(
        self,
        executor: Executor,
        state: Callable[[], State],
        failed: Callable[[RunGone], Awaitable[None]],
        now_s: Callable[[], float],
    ) -> None:
        self._executor = executor
        self._state = state
        self._failed = failed
        self._now_s = now_s
        self._owed: dict[RunId, _Owed] = {}
        self._slots: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(LAUNCHES_AT_ONCE))
        self._closing = False

    def launch(self, record: JobRecord) -> None:
        run, owed = self._of(record)
        owed.launch = self._order(record)
        self._begin(run, owed)

    def resize(self, record: JobRecord) -> None:
        run, owed = self._of(record)
        owed.resize = self._order(record)
        self._begin(run, owed)

    def push(self, run: RunId, force: Force) -> None:
        """Signals a stopping run, repeatedly, until the executor confirms a signal of this force."""
        owed = self._owed.setdefault(run, _Owed())
        if force > owed.force:
            owed.force = force
            owed.hurry.set()
        self._begin(run, owed)

    def kill_old(self, run: RunId) -> None:
        """Kills a run that is not the current attempt but was seen alive, whatever the executor answered before."""
        owed = self._owed.setdefault(run, _Owed())
        owed.answered = Force.ASK
        self.push(run, Force.KILL)

    def signalled(self, run: RunId) -> bool:
        """Whether a signal was sent. It may have arrived even without an answer."""
        return run in self._owed and self._owed[run].sent is not Force.ASK

    def ended(self, run: RunId) -> None:
        """Drops the commands that the run was owed."""
        if (owed := self._owed.pop(run, None)) is not None:
            owed.over = True
            owed.hurry.set()

    def reached(self, node: str) -> None:
        """The machine answers again: sends its owed commands at once instead of after their back-off."""
        for owed in self._owed.values():
            if node in owed.nodes:
                owed.hurry.set()

    def _of(self, record: JobRecord) -> tuple[RunId, _Owed]:
        assert record.run is not None
        owed = self._owed.setdefault(record.run.id, _Owed())
        owed.nodes = record.run.allocation.nodes
        return record.run.id, owed

    def _begin(self, run: RunId, owed: _Owed) -> None:
        if owed.pending and (owed.task is None or owed.task.done()):
            owed.task = asyncio.create_task(self._settle(run, owed), name=f"commands of run {run}")

    async def _settle(self, run: RunId, owed: _Owed) -> None:
        """Send the owed commands until none is left."""
        wait_s = RETRY_S
        while owed.pending:
            owed.hurry.clear()
            answer = await self._next(run, owed)
            if isinstance(answer, Unknown):
                if self._closing:
                    return
                log.warning("run %s: no answer to a command (%s); it is sent again", run, answer.why)
                await self._pause(owed, wait_s)
                wait_s = min(MAX_RETRY_S, 2 * wait_s)
            else:
                wait_s = RETRY_S
        if self._owed.get(run) is owed and not self._is_current(run):
            del self._owed[run]  # an old run that was killed: no observation of its end will come

    async def _pause(self, owed: _Owed, wait_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await owed.hurry.wait()

    async def _next(self, run: RunId, owed: _Owed) -> Answer:
        """Sends the most urgent command. A launch comes before a stop: the executor cannot stop, or report the end of,
        a run that it does not know."""
        if owed.force > owed.answered and (owed.tried or owed.launch is None):
            return await self._signal(run, owed)
        if not self._is_current(run):  # it ended for another reason, for example with its machine
            owed.launch = owed.resize = None
            return Done()
        if owed.launch is not None:
            return await self._launch(owed, owed.launch)
        assert owed.resize is not None
        return await self._resize(run, owed, owed.resize)

    def _is_current(self, run: RunId) -> bool:
        job = self._state().jobs.get(run.job)
        return job is not None and job.holding and job.run is not None and job.run.id == run

    async def _signal(self, run: RunId, owed: _Owed) -> Answer:
        force = owed.sent = owed.force
        answer = await self._asked(self._executor.signal(run, kill=force is Force.KILL))
        if not isinstance(answer, Unknown):
            owed.answered, owed.launch, owed.resize = force, None, None
        if isinstance(answer, Refused):
            log.error("run %s cannot be signalled: %s", run, answer.why)
        return answer

    async def _launch(self, owed: _Owed, order: Order) -> Answer:
        async with AsyncExitStack() as slots:
            # In order of name, so that two runs that need the same nodes cannot deadlock.
            for node in sorted(owed.nodes):
                await slots.enter_async_context(self._slots[node])
            if owed.launch is not order or not self._is_current(order.run):  # obsolete by now
                owed.launch = None if owed.launch is order else owed.launch
                return Done()
            owed.tried = True
            answer = await self._asked(self._executor.launch(order))
        if owed.launch is order and not isinstance(answer, Unknown):
            owed.launch = None
        if isinstance(answer, Refused) and not owed.over:
            await self._refused(order.run, answer)
        return answer

    async def _refused(self, run: RunId, answer: Refused) -> None:
        log.error("run %s could not be started: %s", run, answer.why)
        reason, message = reason_not_started(answer.errno), f"could not be started: {answer.why}"
        await self._failed(RunGone(run=run, reason=reason, at_s=self._now_s(), message=message))

    async def _resize(self, run: RunId, owed: _Owed, order: Order) -> Answer:
        answer = await self._asked(self._executor.resize(order))
        if owed.resize is order and not isinstance(answer, Unknown):
            owed.resize = None
        if isinstance(answer, Refused):
            log.error("run %s was not resized: %s", run, answer.why)
        return answer

    def _order(self, record: JobRecord) -> Order:
        """The order with the present boot ids of its nodes: a machine that reboots must not start a run that it
        lost."""
        assert record.run is not None
        nodes = self._state().nodes
        used = {name: nodes[name] for name in record.run.allocation.nodes if name in nodes}
        return Order(record=record, nodes=used, home=nodes.get(record.files_on))

    async def _asked(self, command: Awaitable[Answer]) -> Answer:
        """Treats an exception as Unknown: a bug in the executor proves nothing about the run."""
        try:
            return await command
        except Exception as error:
            log.exception("an executor failed")
            return Unknown(why=f"the executor failed: {error!r}")

    @property
    def under_way(self) -> bool:
        return any(owed.task is not None and not owed.task.done() for owed in self._owed.values())

    async def settle(self) -> None:
        """Wait for commands that are under way, so that a graceful stop leaves none half sent. The next start derives
        from the state what is still owed, and sends it."""
        self._closing = True
        for owed in self._owed.values():
            owed.hurry.set()
        while tasks := [owed.task for owed in self._owed.values() if owed.task is not None and not owed.task.done()]:
            await asyncio.gather(*tasks, return_exceptions=True)
