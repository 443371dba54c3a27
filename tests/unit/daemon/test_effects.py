"""Commands are owed until they are answered: refused is a verdict about a run, no answer is none."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field

import pytest

from swell.core import events as ev
from swell.core.events import ExitReason
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import replay
from swell.core.observations import RunGone
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.core.state import State
from swell.daemon import effects
from swell.daemon.effects import Effects
from swell.plan.deadlines import Force
from swell.ports import Answer, Done, Order, Refused, Unknown

SILENCE = Unknown(why="no answer")


def world(*nodes: str) -> State:
    """A job planned on each of these nodes ("a b": on both)."""
    events: list[ev.Event] = []
    for job, names in enumerate(nodes, start=1):
        allocation = Allocation(parts=tuple(Part(node=n, gpus=(0,)) for n in names.split()), gpu_type="gpu")
        events += [
            *(ev.NodeObserved(node=Node(name=name, gpus=(Gpu(index=0),)), at_s=0.0) for name in names.split()),
            ev.JobSubmitted(job=job, spec=JobSpec(name="j", command=("true",)), at_s=0.0),
            ev.RunPlanned(run=RunId(job, 1), allocation=allocation, at_s=1.0),
        ]
    return replay(events)


@dataclass
class FakeExecutor:
    """Answers by script, then done. `heard`: what it was asked, in order."""

    answers: list[Answer | Awaitable[Answer]] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)

    async def _answer(self, said: str) -> Answer:
        self.heard.append(said)
        answer = self.answers.pop(0) if self.answers else Done()
        return answer if isinstance(answer, Done | Refused | Unknown) else await answer

    async def launch(self, order: Order) -> Answer:
        return await self._answer(f"launch {order.run}")

    async def resize(self, order: Order) -> Answer:
        return await self._answer(f"resize {order.run}")

    async def signal(self, run: RunId, *, kill: bool) -> Answer:
        return await self._answer(f"{'kill' if kill else 'term'} {run}")


def played(
    executor: FakeExecutor, scene: Callable[[Effects, State], Coroutine[object, object, None]], state: State
) -> list[RunGone]:
    told: list[RunGone] = []

    async def failed(gone: RunGone) -> None:
        told.append(gone)

    async def play() -> None:
        made = Effects(executor, lambda: state, failed, lambda: 7.0)  # type: ignore[arg-type]
        await scene(made, state)
        await made.settle()

    asyncio.run(play())
    return told


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "RETRY_S", 0.0)
    monkeypatch.setattr(effects, "MAX_RETRY_S", 0.0)


async def heard(executor: FakeExecutor, commands: Sequence[str]) -> None:
    async with asyncio.timeout(5.0):
        while executor.heard != list(commands):
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, ExitReason.NODE_FULL),
        (errno.EDQUOT, ExitReason.NODE_FULL),
        (errno.EACCES, ExitReason.START_FAILED),
        (None, ExitReason.START_FAILED),
    ],
)
def test_a_refused_launch_ends_the_run_and_a_full_disk_is_no_fault_of_the_job(
    number: int | None, reason: ExitReason
) -> None:
    executor = FakeExecutor(answers=[Refused(why="it says no", errno=number)])

    async def scene(made: Effects, state: State) -> None:
        made.launch(state.jobs[1])
        await heard(executor, ["launch 1.1"])

    (gone,) = played(executor, scene, world("n1"))
    assert (gone.run, gone.reason, gone.at_s) == (RunId(1, 1), reason, 7.0)
    assert "it says no" in gone.message


def test_a_launch_without_an_answer_is_sent_again_and_never_taken_as_failed() -> None:
    executor = FakeExecutor(answers=[SILENCE, SILENCE])

    async def scene(made: Effects, state: State) -> None:
        made.launch(state.jobs[1])
        await heard(executor, ["launch 1.1"] * 3)

    assert played(executor, scene, world("n1")) == []


def test_an_executor_that_raises_has_given_no_verdict() -> None:
    async def broken() -> Answer:
        raise ValueError("a fault of the executor's own")

    executor = FakeExecutor(answers=[broken()])

    async def scene(made: Effects, state: State) -> None:
        made.launch(state.jobs[1])
        await heard(executor, ["launch 1.1"] * 2)

    assert played(executor, scene, world("n1")) == []


def test_a_failed_signal_is_repeated_until_it_is_answered() -> None:
    executor = FakeExecutor(answers=[Done(), SILENCE, SILENCE, Done(), SILENCE])

    async def scene(made: Effects, state: State) -> None:
        made.launch(state.jobs[1])
        await heard(executor, ["launch 1.1"])
        assert not made.signalled(RunId(1, 1))
        made.push(RunId(1, 1), Force.TERM)
        await heard(executor, ["launch 1.1", *["term 1.1"] * 3])
        assert made.signalled(RunId(1, 1))
        made.push(RunId(1, 1), Force.TERM)  # passes ask again and again: answered once, it is not sent again
        await asyncio.sleep(0)
        made.push(RunId(1, 1), Force.KILL)
        await heard(executor, ["launch 1.1", *["term 1.1"] * 3, *["kill 1.1"] * 2])

    played(executor, scene, world("n1"))


def test_a_stop_makes_an_unanswered_launch_moot_once_the_executor_knows_of_the_run() -> None:
    executor = FakeExecutor(answers=[SILENCE, Done()])

    async def scene(made: Effects, state: State) -> None:
        made.launch(state.jobs[1])
        made.push(RunId(1, 1), Force.KILL)
        await heard(executor, ["launch 1.1", "kill 1.1"])
        for _ in range(20):
            await asyncio.sleep(0)

    played(executor, scene, world("n1"))
    assert executor.heard == ["launch 1.1", "kill 1.1"]


def test_what_is_owed_to_a_run_that_has_ended_is_not_sent_any_more() -> None:
    executor = FakeExecutor(answers=[SILENCE] * 1000)

    async def scene(made: Effects, state: State) -> None:
        made.launch(state.jobs[1])
        await heard(executor, ["launch 1.1"])
        made.ended(RunId(1, 1))
        sent = len(executor.heard)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(executor.heard) <= sent + 1

    played(executor, scene, world("n1"))


def test_a_launch_is_never_sent_for_a_run_that_ended_otherwise() -> None:
    """Its machine was lost and the answer of the store as well: nobody has told this in so many words."""
    executor = FakeExecutor(answers=[SILENCE])

    async def scene(made: Effects, state: State) -> None:
        made.launch(state.jobs[1])
        await heard(executor, ["launch 1.1"])
        replay([ev.RunEnded(run=RunId(1, 1), reason=ExitReason.NODE_LOST, at_s=5.0)], state)
        for _ in range(20):
            await asyncio.sleep(0)

    played(executor, scene, world("n1"))
    assert executor.heard == ["launch 1.1"]


class SlowNodes(FakeExecutor):
    """Launches end when they are let."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def launch(self, order: Order) -> Answer:
        await super().launch(order)
        await self.go.wait()
        return Done()


def test_a_slow_node_delays_launches_on_no_other_node() -> None:
    slow, at_once = SlowNodes(), effects.LAUNCHES_AT_ONCE

    async def scene(made: Effects, state: State) -> None:
        for job in range(1, 41):
            made.launch(state.jobs[job])
        await heard(slow, [f"launch {job}.1" for job in range(1, at_once + 1)])
        for job in range(41, 61):
            made.launch(state.jobs[job])
        await heard(slow, [f"launch {job}.1" for job in (*range(1, at_once + 1), *range(41, 61))])
        slow.go.set()

    played(slow, scene, world(*["slow"] * 40, *(f"n{job}" for job in range(20))))
    assert len(slow.heard) == 60


def test_runs_on_the_same_nodes_never_wait_for_each_other_for_ever() -> None:
    executor, jobs = FakeExecutor(), 4 * effects.LAUNCHES_AT_ONCE

    async def scene(made: Effects, state: State) -> None:
        for job in range(1, jobs + 1):
            made.launch(state.jobs[job])
        async with asyncio.timeout(10):
            await made.settle()

    played(executor, scene, world(*("a b" if job % 2 else "b a" for job in range(jobs))))
    assert len(executor.heard) == jobs


def test_a_machine_that_is_back_is_sent_at_once_what_it_is_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "RETRY_S", 3600.0)
    monkeypatch.setattr(effects, "MAX_RETRY_S", 3600.0)
    executor = FakeExecutor(answers=[SILENCE])

    async def scene(made: Effects, state: State) -> None:
        made.launch(state.jobs[1])
        await heard(executor, ["launch 1.1"])
        for _ in range(20):
            await asyncio.sleep(0)
        made.reached("another")
        for _ in range(20):
            await asyncio.sleep(0)
        assert executor.heard == ["launch 1.1"]
        made.reached("n1")
        await heard(executor, ["launch 1.1"] * 2)

    played(executor, scene, world("n1"))
