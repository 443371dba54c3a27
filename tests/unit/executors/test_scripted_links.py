"""Links that fail: what a command ends in, and what really happened on the machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace

import pytest

from contract.executor_benches import Ready, as_is, ready
from faults.virtual_loop import VirtualLoop
from swell.core.ids import RunId
from swell.core.resources import Node
from swell.executors.scripted import Script, ScriptedExecutor, Theatre
from swell.ports import Done, Launch, Refused, Unknown, Worker

RUN = RunId(1, 1)


class LoopClock:
    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()


def order(*nodes: str, boot_id: str = "") -> Ready:
    workers = tuple(Worker(rank=rank, node=node, argv=("x",), env={}, cwd="/") for rank, node in enumerate(nodes))
    made = ready(Launch(run=RUN, workers=workers, grace_s=2.0))
    return replace(made, nodes={name: replace(node, boot_id=boot_id) for name, node in made.nodes.items()})


class Stage:
    def __init__(self) -> None:
        self.theatre = Theatre(nodes=(Node(name="a"), Node(name="b")))

    def executor(self, epoch: int = 1) -> ScriptedExecutor:
        return ScriptedExecutor(self.theatre, LoopClock(), lambda *_: Script(), as_is, epoch=epoch)

    def runs(self, node: str) -> bool:
        self.theatre.machine(node).step(asyncio.get_running_loop().time())
        return RUN in self.theatre.machine(node).running()


def played(scene: Callable[[Stage], Coroutine[object, object, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(scene(Stage()))


def test_a_cut_link_answers_nothing_and_only_its_own_machine_is_missed() -> None:
    async def scene(stage: Stage) -> None:
        stage.theatre.machine("a").link.cut = True
        assert isinstance(await stage.executor().launch(order("a", "b")), Unknown)
        assert (stage.runs("a"), stage.runs("b")) == (False, True)

    played(scene)


def test_what_was_sent_over_a_cut_link_may_arrive_late_but_never_after_its_run_was_stopped() -> None:
    async def scene(stage: Stage) -> None:
        executor, link = stage.executor(), stage.theatre.machine("a").link
        link.cut, link.late_s = True, 30.0
        assert isinstance(await executor.launch(order("a")), Unknown)
        link.cut = False
        assert await executor.signal(RUN, kill=True) == Done()
        await asyncio.sleep(60.0)
        assert not stage.runs("a")

    played(scene)


@pytest.mark.parametrize(("slow_s", "answer"), [(3.0, Done), (7.0, Unknown)])
def test_a_slow_machine_does_it_whether_or_not_somebody_still_waits(slow_s: float, answer: type) -> None:
    async def scene(stage: Stage) -> None:
        stage.theatre.machine("a").link.slow_s = slow_s
        assert isinstance(await stage.executor().launch(order("a")), answer)
        await asyncio.sleep(10.0)
        assert stage.runs("a")

    played(scene)


def test_lost_answers_and_doubled_commands_start_a_run_once() -> None:
    async def scene(stage: Stage) -> None:
        executor, link = stage.executor(), stage.theatre.machine("a").link
        link.deaf = link.doubled = True
        assert isinstance(await executor.launch(order("a")), Unknown)
        assert isinstance(await executor.launch(order("a")), Unknown)
        link.deaf = False
        assert await executor.launch(order("a")) == Done()
        assert stage.theatre.starts[RUN] == 1

    played(scene)


def test_a_machine_that_was_booted_has_another_id_runs_nothing_and_starts_nothing_of_before() -> None:
    async def scene(stage: Stage) -> None:
        executor, machine = stage.executor(), stage.theatre.machine("a")
        before = machine.boot_id
        assert await executor.launch(order("a", boot_id=before)) == Done()
        machine.down(1.0)
        machine.boot()
        assert machine.boot_id != before
        assert not stage.runs("a")
        machine.actors.clear()
        assert isinstance(await executor.launch(order("a", boot_id=before)), Unknown)
        assert not stage.runs("a")

    played(scene)


def test_a_machine_refuses_a_daemon_that_lost_the_database_to_a_newer_one() -> None:
    async def scene(stage: Stage) -> None:
        old, new = stage.executor(epoch=1), stage.executor(epoch=2)
        assert await new.launch(order("a")) == Done()
        assert isinstance(await old.signal(RUN, kill=True), Refused)
        assert stage.runs("a")

    played(scene)


def test_a_run_ends_by_itself_when_its_lease_is_over() -> None:
    async def scene(stage: Stage) -> None:
        assert await stage.executor().launch(order("a")) == Done()
        stage.theatre.machine("a").lease_until_s = 20.0
        await asyncio.sleep(19.0)
        assert stage.runs("a")
        await asyncio.sleep(2.0)
        assert not stage.runs("a")

    played(scene)
