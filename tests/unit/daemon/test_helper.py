"""What is worked out beside the daemon: sent whole, bounded, and never in the way of the next."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path

import pytest

from swell.core import events as ev
from swell.core.errors import Busy
from swell.core.events import Event
from swell.core.job import GpuRequest, JobSpec
from swell.core.lifecycle import apply, replay
from swell.core.resources import Gpu, Node, gpus_per_node
from swell.core.snapshot import Options
from swell.core.state import State
from swell.daemon import helper as module
from swell.daemon.helper import Helper, NoAnswer
from swell.daemon.lookahead import Advice, Advise, Desk, Done, Foresee, Request, Simulate, Simulation
from swell.daemon.moments import Moment, Receiver, Sender, packed, unpacked
from swell.policy import registry
from swell.policy.custom import load_policy_file
from swell.sim.forecast import Forecast, copy_of
from swell.sim.generate import Recipe
from swell.speed.book import Book

NODE = Node(name="n1", gpus=tuple(Gpu(index=i) for i in range(4)), cpus=8, memory_mib=8192)
BOOK = Book()

ASLEEP = """
import time
from swell.core.decision import Decision

class Asleep:
    name = "asleep"
    elastic = False

    def decide(self, snapshot, memory, rng):
        print("this must not be taken for an answer")
        if snapshot.jobs:
            time.sleep(3600)
        return Decision(grants={}, memory=memory)
"""


def waiting(jobs: int, policy: str = "fifo") -> State:
    events: list[Event] = [ev.NodeObserved(node=NODE, at_s=0.0), ev.PolicySet(name=policy, placer="spread", at_s=0.0)]
    spec = JobSpec(name="j", command=("true",), gpus=GpuRequest(min=4, max=4))
    events += [ev.JobSubmitted(job=job, spec=spec, at_s=float(job)) for job in range(1, jobs + 1)]
    return replay(events)


def moment_of(state: State) -> Moment:
    per_node = gpus_per_node(state.nodes.values())
    jobs = [state.jobs[job] for job in state.active]
    answers = {job.id: (BOOK.speed(job, per_node), BOOK.remaining(job)) for job in jobs}
    return Moment(state=copy_of(state), answers=answers, options=Options(), now_s=10.0)


def played(scene: Coroutine[None, None, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scene

    asyncio.run(bounded())


@pytest.fixture
def asleep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_custom", {})
    monkeypatch.setattr(registry, "_files", {})
    (tmp_path / "asleep.py").write_text(ASLEEP)
    load_policy_file(str(tmp_path / "asleep.py"))


def test_a_moment_arrives_as_it_was_and_what_did_not_change_is_not_sent_again() -> None:
    sender, receiver, state = Sender(), Receiver(), waiting(5)
    first = receiver.moment(unpacked(packed(sender.difference(moment_of(state)))))  # type: ignore[arg-type]
    assert first.state == copy_of(state)
    apply(state, ev.PriorityChanged(job=3, priority=7, at_s=11.0))
    apply(state, ev.JobCancelled(job=5, at_s=11.0))
    apply(state, ev.NodeObserved(node=replace(NODE, name="n2"), at_s=11.0))
    difference = sender.difference(moment_of(state))
    assert list(difference.records) == [3]
    assert list(difference.changed_nodes) == ["n2"]
    assert receiver.moment(unpacked(packed(difference))).state == copy_of(state)  # type: ignore[arg-type]
    apply(state, ev.NodeRemoved(node="n1", at_s=12.0))
    last = receiver.moment(unpacked(packed(sender.difference(moment_of(state)))))  # type: ignore[arg-type]
    assert last.state == copy_of(state)
    assert set(last.answers) == set(state.active)


def test_an_answer_says_what_processor_time_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((100.0, 103.0))
    monkeypatch.setattr(time, "thread_time", lambda: next(times))
    monkeypatch.setattr(Desk, "_do", lambda *_: Advice(text="wait"))
    request = Request(moment=Sender().difference(moment_of(waiting(1))), task=Advise(job=1))
    done = unpacked(Desk().handle(packed(request)))
    assert isinstance(done, Done)
    assert (done.failure, done.cpu_s) == ("", 3.0)


@pytest.mark.parametrize("few", [0, 100], ids=["in a process", "in a thread"])
def test_the_same_is_worked_out_in_a_thread_and_in_a_process(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        helper = Helper(niceness=0, most_waiting=4, limit_s=60.0)
        try:
            now = moment_of(waiting(3))
            advice = (await helper.do(now, Advise(job=3))).result
            assert isinstance(advice, Advice)
            assert advice.text.startswith("raise its priority") or advice.text.startswith("add a node")
            found = (await helper.do(now, Foresee(samples=2))).result
            assert isinstance(found, Forecast)
            assert list(found.intervals) == [1, 2, 3]
            assert found.until_s is None
        finally:
            await helper.stop()

    monkeypatch.setattr(module, "FEW_JOBS", few)
    played(scene())


def test_never_runs_what_lies_in_the_directory_that_the_daemon_was_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which may be /tmp, and the daemon's user root."""

    async def scene() -> None:
        helper = Helper(niceness=0, most_waiting=4, limit_s=60.0)
        try:
            assert isinstance((await helper.do(moment_of(waiting(3)), Advise(job=3))).result, Advice)
        finally:
            await helper.stop()

    for name in ("secrets", "numpy", "msgspec"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('somebody else was here')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "FEW_JOBS", 0)
    played(scene())


def test_a_process_that_dies_costs_its_answer_and_the_next_one_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        helper = Helper(niceness=0, most_waiting=4, limit_s=60.0)
        try:
            now = moment_of(waiting(3))
            await helper.do(now, Advise(job=3))
            assert helper.pid is not None
            os.kill(helper.pid, signal.SIGKILL)
            with pytest.raises(NoAnswer, match="has died"):
                await helper.do(now, Advise(job=3))
            assert isinstance((await helper.do(now, Advise(job=3))).result, Advice)
        finally:
            await helper.stop()

    monkeypatch.setattr(module, "FEW_JOBS", 0)
    played(scene())


@pytest.mark.usefixtures("asleep")
def test_a_policy_that_never_answers_is_ended_after_its_time() -> None:
    async def scene() -> None:
        helper = Helper(niceness=0, most_waiting=4, limit_s=5.0)
        try:
            with pytest.raises(NoAnswer, match="longer than 5 s under policy asleep"):
                await helper.do(moment_of(waiting(3, "asleep")), Advise(job=3))
            assert helper.pid is None
        finally:
            await helper.stop()

    played(scene())


@pytest.mark.usefixtures("asleep")
def test_more_than_may_wait_are_told_to_come_back() -> None:
    async def scene() -> None:
        helper = Helper(niceness=0, most_waiting=2, limit_s=50.0)
        now = moment_of(waiting(3, "asleep"))
        asked = [asyncio.ensure_future(helper.do(now, Advise(job=3))) for _ in range(3)]

        def full() -> bool:
            return helper.full

        try:
            while not full():
                await asyncio.sleep(0.001)
            with pytest.raises(Busy, match="ask again"):
                await helper.do(now, Advise(job=3))
            asked.pop().cancel()
            while full():
                await asyncio.sleep(0.001)
            with pytest.raises(Busy, match="other answers"):
                await helper.do(now, Advise(job=3), wait_s=0.01)
        finally:
            for one in asked:
                one.cancel()
            await helper.stop()

    played(scene())


@pytest.mark.usefixtures("asleep")
def test_the_process_ends_with_the_daemon_also_in_the_middle_of_its_work() -> None:
    async def scene() -> None:
        helper = Helper(niceness=0, most_waiting=2, limit_s=50.0)
        asked = asyncio.ensure_future(helper.do(moment_of(waiting(3, "asleep")), Advise(job=3)))
        while helper.pid is None:
            await asyncio.sleep(0.001)
        assert helper._child is not None
        process = helper._child[0]
        assert process.stdin is not None
        await asyncio.sleep(0)  # what is asked is on its way
        process.stdin.close()  # as the system does when the daemon dies
        assert await process.wait() == 0
        with pytest.raises(NoAnswer):
            await asked
        await helper.stop()

    played(scene())


def test_a_simulation_never_runs_in_a_thread_of_the_daemon_and_is_ended_in_time(asleep: None) -> None:
    """However few jobs there are."""

    async def scene() -> None:
        helper = Helper(niceness=0, most_waiting=2, limit_s=30.0)
        recipe = Recipe(jobs=3, hours=1, gpus=4, seed=1)
        task = Simulate(policies=("fifo",), source=recipe, cluster="1x4", most_jobs=10)
        done = await helper.do(moment_of(waiting(2)), task)
        assert isinstance(done.result, Simulation)
        assert b'"policy":"fifo"' in done.result.document
        assert helper.pid is not None
        await helper.stop()

        impatient = Helper(niceness=0, most_waiting=2, limit_s=2.0)
        with pytest.raises(NoAnswer, match="took longer than 2 s"):
            await impatient.do(moment_of(waiting(2)), replace(task, policies=("asleep",)))
        assert impatient.pid is None
        await impatient.stop()

    played(scene())
