"""Asks the policy and the placer for a plan. A policy that crashes or never returns costs that decision, nothing else.

Built-in policies decide on the event loop if there are few jobs, in a thread if there are many. Custom policies
(`policy_files`) always decide in a thread. A thread that has not answered after `late_s` is abandoned, and its late
answer is discarded, because the cluster has changed meanwhile. Python cannot kill a thread: it lives on as a daemon
thread, and the same choice gets no second thread until it ends. Choosing another policy does not wait for it.

This module makes the policies and placers of live decisions; forecasts and explain have instances of their own, so
that no cache is shared.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from swell.core.decision import Plan
from swell.core.errors import SwellError
from swell.core.snapshot import Snapshot
from swell.daemon.timing import TimedPlacer
from swell.placement.registry import placer_named
from swell.plan.cycle import cycle
from swell.policy.registry import is_custom, policy_named
from swell.ports import Policy

SMALL = 200
"""Up to this number of jobs, deciding takes less time than handing it to a thread costs."""
MOST_S = 600.0
"""Upper bound of the patience with a slow policy."""
WAY_BACK = "`swell policy fifo` goes back to one that works"


class NoDecision(SwellError):
    """This pass yields no plan. The message says why, and what continues without one."""


class Superseded(SwellError):
    """Another policy was chosen while this one was deciding; ask again."""


@dataclass(eq=False)
class Choice:
    """The chosen policy and placer, instantiated at their first decision."""

    policy: str
    placer: str
    made: tuple[Policy, TimedPlacer] | None = None
    parts_s: tuple[float, float] = (0.0, 0.0)  # time of the policy and of the placer for the last plan
    running: threading.Thread | None = None
    since_s: float = 0.0
    took_s: float = 0.0  # the last decision, on time or late

    def plan(self, snapshot: Snapshot, memory: Mapping[str, object], rng: random.Random) -> Plan:
        if self.made is None:
            self.made = policy_named(self.policy), TimedPlacer(placer_named(self.placer))
        policy, placer = self.made
        began_s = time.perf_counter()
        plan = cycle(snapshot, policy, placer, memory, rng)
        self.parts_s = time.perf_counter() - began_s - placer.took_s, placer.took_s
        if not is_custom(self.policy):
            return plan
        # Reasons are computed when read; force them here, or a custom policy's code would run on the loop.
        reasons = plan.explain()
        return replace(plan, explain=lambda: reasons)


class Decider:
    def __init__(self, late_s: float) -> None:
        self._late_s = late_s
        self._choice: Choice | None = None
        self._changed = asyncio.Event()
        self.trouble = ""  # why there was no plan from the last pass; empty: there was one

    @property
    def chosen(self) -> bool:
        return self._choice is not None

    @property
    def parts_s(self) -> tuple[float, float]:
        """Time of the policy and of the placer for the last plan."""
        return self._choice.parts_s if self._choice is not None else (0.0, 0.0)

    def choose(self, policy: str, placer: str) -> None:
        """Use these from the next pass on; a decision that is under way is abandoned."""
        self._choice = Choice(policy, placer)
        self.trouble = ""
        self._changed.set()

    def at_once(self, snapshot: Snapshot) -> bool:
        """Whether `plan` runs on the event loop, without yielding to other tasks."""
        return self._choice is not None and not is_custom(self._choice.policy) and len(snapshot.jobs) <= SMALL

    async def plan(self, snapshot: Snapshot, memory: Mapping[str, object], rng: random.Random) -> Plan:
        """Raises NoDecision or Superseded."""
        choice = self._choice
        assert choice is not None  # callers check `chosen` first
        try:
            if not self.at_once(snapshot):
                plan = await self._in_thread(choice, snapshot, memory, rng)
            else:
                plan = choice.plan(snapshot, memory, rng)
        except Superseded:
            raise
        except NoDecision as error:
            self.trouble = str(error)
            raise
        except Exception as error:
            choice.made = None  # its caches may be inconsistent
            self.trouble = (
                f"policy {choice.policy} failed: {type(error).__name__}: {error}. Runs go on as last decided, nothing "
                f"new starts, and it is asked again; {WAY_BACK}"
            )
            raise NoDecision(self.trouble) from error
        self.trouble = ""
        return plan

    async def _in_thread(
        self, choice: Choice, snapshot: Snapshot, memory: Mapping[str, object], rng: random.Random
    ) -> Plan:
        if choice.running is not None and choice.running.is_alive():
            raise self._late(choice)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Plan] = loop.create_future()

        def ask() -> None:
            try:
                plan = choice.plan(snapshot, memory, rng)
                choice.took_s = time.monotonic() - choice.since_s
            except BaseException as error:  # also sys.exit() in a policy
                failure = error if isinstance(error, Exception) else RuntimeError(repr(error))
                _tell(loop, answer, failure)
            else:
                _tell(loop, answer, plan)

        choice.running, choice.since_s = threading.Thread(target=ask, name="policy", daemon=True), time.monotonic()
        choice.running.start()
        return await self._answer(choice, answer)

    async def _answer(self, choice: Choice, answer: asyncio.Future[Plan]) -> Plan:
        self._changed.clear()
        changed = asyncio.ensure_future(self._changed.wait())
        either: set[asyncio.Future[Any]] = {answer, changed}
        try:
            await asyncio.wait(either, timeout=self._patience_s(choice), return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        if self._choice is not choice:
            raise Superseded(f"another policy was chosen while {choice.policy} was deciding")
        if not answer.done():
            choice.made = None  # the abandoned thread still uses it
            raise self._late(choice)
        choice.running = None
        return answer.result()

    def _patience_s(self, choice: Choice) -> float:
        """A policy that answered late gets twice the time it took, so that a slow policy still decides eventually."""
        return max(self._late_s, min(2 * choice.took_s, MOST_S))

    def _late(self, choice: Choice) -> NoDecision:
        return NoDecision(
            f"policy {choice.policy} has been deciding for {time.monotonic() - choice.since_s:.0f} s (it has "
            f"{self._patience_s(choice):.3g} s). Runs go on as last decided and nothing new starts until it answers; "
            f"{WAY_BACK}"
        )


def _tell(loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Plan], result: Plan | Exception) -> None:
    """Called from the thread. Does nothing if the pass was abandoned or the loop has ended."""

    def tell() -> None:
        if answer.done():
            return
        if isinstance(result, Exception):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    with suppress(RuntimeError):
        loop.call_soon_threadsafe(tell)
