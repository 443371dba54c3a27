"""A policy that sleeps, crashes or leaves: what becomes of the decision, and of the way back."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import pytest

from swell.core import events as ev
from swell.core.decision import Decision, Reasons
from swell.core.job import JobSpec
from swell.core.lifecycle import replay
from swell.core.resources import Gpu, Node
from swell.core.snapshot import Capacity, Options, Snapshot
from swell.daemon.deciding import SMALL, Decider, NoDecision, Superseded
from swell.plan.snapshotter import Snapshotter
from swell.policy import registry
from swell.ports import Policy, Random
from swell.speed.book import Book
from unit.policy.views import Inelastic


def with_a_job() -> Snapshot:
    state = replay(
        [
            ev.NodeObserved(node=Node(name="n1", gpus=(Gpu(index=0),)), at_s=0.0),
            ev.JobSubmitted(job=1, spec=JobSpec(name="j", command=("true",)), at_s=0.0),
        ]
    )
    return Snapshotter(Book()).take(state, 1.0, Options())[0]


WAITING = with_a_job()
ANSWERS_S = 30.0
"""Far more than anything here takes, so that only what never comes is missed."""


class Sleeper(Inelastic):
    """Decides when it is woken."""

    name = "sleeper"
    awake = threading.Event()
    asked = 0

    def decide(self, snapshot: Snapshot, memory: Mapping[str, object], rng: Random) -> Decision:
        type(self).asked += 1
        self.awake.wait(ANSWERS_S)
        return Decision(grants={})


class Crasher(Inelastic):
    name = "crasher"
    how: Callable[[], object] = staticmethod(lambda: None)

    def decide(self, snapshot: Snapshot, memory: Mapping[str, object], rng: Random) -> Decision:
        type(self).how()
        return Decision(grants={}, explain=self.reasons)

    def reasons(self) -> Reasons:
        self.threads.append(threading.current_thread())
        return {}

    threads: list[threading.Thread] = []  # noqa: RUF012 - where reasons were put together


@pytest.fixture(autouse=True)
def own_policies(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    policies: dict[str, Callable[[], Policy]] = {"sleeper": Sleeper, "crasher": Crasher}
    monkeypatch.setattr(registry, "_custom", policies)
    Sleeper.awake, Sleeper.asked = threading.Event(), 0
    yield
    Sleeper.awake.set()


def ask(decider: Decider, snapshot: Snapshot = WAITING) -> asyncio.Task[object]:
    return asyncio.ensure_future(decider.plan(snapshot, {}, random.Random(0)))


def choosing(policy: str, late_s: float = ANSWERS_S) -> Decider:
    decider = Decider(late_s)
    decider.choose(policy, "consolidated")
    return decider


def test_a_policy_that_never_answers_is_given_up_and_named() -> None:
    async def scene() -> None:
        decider = choosing("sleeper", late_s=0.01)
        with pytest.raises(NoDecision, match=r"policy sleeper has been deciding for .*`swell policy fifo`"):
            await ask(decider)
        assert "sleeper" in decider.trouble
        with pytest.raises(NoDecision):
            await ask(decider)
        assert Sleeper.asked == 1, "it is not asked again while it has not answered"

    asyncio.run(scene())


def test_another_policy_is_chosen_while_one_sleeps() -> None:
    async def scene() -> None:
        decider = choosing("sleeper")
        asleep = ask(decider)
        while not Sleeper.asked:
            await asyncio.sleep(0.001)
        decider.choose("fifo", "consolidated")
        with pytest.raises(Superseded):
            await asleep
        assert (await decider.plan(WAITING, {}, random.Random(0))).starts
        assert not decider.trouble

    asyncio.run(scene())


def test_a_late_answer_is_not_used_and_the_policy_is_asked_again() -> None:
    async def scene() -> None:
        decider = choosing("sleeper", late_s=0.01)
        with pytest.raises(NoDecision):
            await ask(decider)
        Sleeper.awake.set()
        async with asyncio.timeout(ANSWERS_S):
            while decider.trouble:
                try:
                    await ask(decider)
                except NoDecision:
                    await asyncio.sleep(0.001)
        assert Sleeper.asked > 1

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda: sys.exit("enough"), "SystemExit('enough')"),
    ],
)
def test_a_crash_is_told_with_the_way_back(how: Callable[[], object], said: str) -> None:
    async def scene() -> None:
        Crasher.how = staticmethod(how)
        decider = choosing("crasher")
        with pytest.raises(NoDecision) as caught:
            await ask(decider)
        assert "policy crasher failed" in str(caught.value)
        assert said in str(caught.value)
        assert decider.trouble == str(caught.value)
        Crasher.how = staticmethod(lambda: None)
        await ask(decider)
        assert not decider.trouble, "it decides again"

    asyncio.run(scene())


def test_reasons_of_a_strangers_policy_are_never_put_together_on_the_loop() -> None:
    async def scene() -> None:
        Crasher.how, Crasher.threads = staticmethod(lambda: None), []
        plan = await choosing("crasher").plan(WAITING, {}, random.Random(0))
        plan.explain()
        assert threading.current_thread() not in Crasher.threads

    asyncio.run(scene())


def test_a_snapshot_without_gpus_is_decided_too() -> None:
    nothing = Snapshot(now_s=0.0, jobs=(), nodes=(), capacity=Capacity(gpu_milli={}))
    assert not asyncio.run(choosing("swell").plan(nothing, {}, random.Random(0))).starts


class Slow(Sleeper):
    """Takes its time, and comes back."""

    name = "slow"

    def decide(self, snapshot: Snapshot, memory: Mapping[str, object], rng: Random) -> Decision:
        type(self).asked += 1
        time.sleep(0.2)
        return Decision(grants={})


def test_a_policy_that_is_slow_every_time_decides_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        decider = choosing("slow", late_s=0.05)
        with pytest.raises(NoDecision):
            await ask(decider)
        async with asyncio.timeout(ANSWERS_S):
            while decider.trouble:
                with suppress(NoDecision):
                    await ask(decider)
                await asyncio.sleep(0.01)

    monkeypatch.setitem(registry._custom, "slow", Slow)
    asyncio.run(scene())


@pytest.mark.parametrize(
    ("policy", "jobs", "at_once"),
    [("fifo", 0, True), ("fifo", SMALL, True), ("fifo", SMALL + 1, False), ("crasher", 1, False), ("", 1, False)],
)
def test_only_a_policy_of_our_own_with_few_jobs_is_asked_on_the_loop(policy: str, jobs: int, *, at_once: bool) -> None:
    decider = Decider(ANSWERS_S)
    if policy:
        decider.choose(policy, "consolidated")
    assert decider.at_once(replace(WAITING, jobs=tuple(WAITING.jobs) * jobs)) is at_once
