"""The executor is chosen by what a node declares; what is not known, or not built, never runs somewhere else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest

from swell.core.ids import JobId, RunId
from swell.core.job import JobSpec
from swell.core.observations import NodeSeen, Observation
from swell.core.resources import Allocation, Node, Part
from swell.core.state import JobRecord, Run
from swell.executors.router import Router
from swell.ports import Answer, Done, LogChunk, Order, Refused, Unknown


@dataclass(eq=False)
class Recorder:
    """An executor that answers `answer` to everything."""

    answer: Answer = field(default_factory=Done)
    heard: list[str] = field(default_factory=list)
    sees: tuple[Observation, ...] = ()
    log_data: bytes = b""
    fails: bool = False

    async def launch(self, order: Order) -> Answer:
        self.heard.append(f"launch {order.run}")
        return self.answer

    async def resize(self, order: Order) -> Answer:
        self.heard.append(f"resize {order.run}")
        return self.answer

    async def signal(self, run: RunId, *, kill: bool) -> Answer:
        self.heard.append(f"signal {run}")
        return self.answer

    async def remove(self, job: JobId) -> Answer:
        self.heard.append(f"remove {job}")
        return self.answer

    async def observe(self, known: Sequence[RunId]) -> AsyncIterator[Observation]:
        for item in self.sees:
            yield item
        if self.fails:
            raise ValueError("broken")
        await asyncio.Event().wait()

    async def log(self, run: RunId, rank: int, offset: int, limit: int) -> LogChunk:
        return LogChunk(data=self.log_data, offset=offset, next_offset=offset + len(self.log_data), end=False)

    async def log_since(self, run: RunId, rank: int, age_s: float) -> int:
        return len(self.log_data)


def order(declared: dict[str, str], on: Sequence[str]) -> Order:
    allocation = Allocation(parts=tuple(Part(node=name) for name in on))
    run = Run(id=RunId(7, 1), allocation=allocation, planned_s=0.0)
    record = JobRecord(id=7, spec=JobSpec(name="j", command=("true",)), submitted_s=0.0, run=run)
    nodes = {name: Node(name=name, executor=kind) for name, kind in declared.items()}
    return Order(record=record, nodes=nodes)


def test_a_run_goes_to_the_executor_that_its_nodes_declare() -> None:
    local, other = Recorder(), Recorder()
    router = Router({"local": local, "ssh": other})
    assert asyncio.run(router.launch(order({"a": "ssh"}, ["a"]))) == Done()
    assert asyncio.run(router.resize(order({"a": "local", "b": "local"}, ["a", "b"]))) == Done()
    assert (local.heard, other.heard) == (["resize 7.1"], ["launch 7.1"])


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ({"b": "local"}, "no machine called a any more"),
        ({"a": "ssh"}, "'ssh' (over SSH), which this version of Swell does not have"),
        ({"a": "kubernetes"}, "'kubernetes' (as pods), which this version of Swell does not have"),
        ({"a": "loacl"}, "'loacl', which this version"),
    ],
)
def test_never_runs_elsewhere_what_its_node_cannot_run(declared: dict[str, str], says: str) -> None:
    local = Recorder()
    answer = asyncio.run(Router({"local": local}).launch(order(declared, ["a"])))
    assert isinstance(answer, Refused)
    assert says in answer.why
    assert local.heard == []


def test_a_run_never_spans_executors() -> None:
    local, other = Recorder(), Recorder()
    answer = asyncio.run(Router({"local": local, "ssh": other}).launch(order({"a": "local", "b": "ssh"}, ["a", "b"])))
    assert isinstance(answer, Refused)
    assert local.heard == other.heard == []


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (Done(), Done(), Done()),
        (Done(), Unknown(why="?"), Unknown(why="?")),
        (Unknown(why="?"), Refused(why="no"), Refused(why="no")),
    ],
)
def test_signals_and_removals_go_to_all_and_the_worst_answer_counts(
    first: Answer, second: Answer, expected: Answer
) -> None:
    router = Router({"local": Recorder(answer=first), "ssh": Recorder(answer=second)})
    assert asyncio.run(router.signal(RunId(7, 1), kill=True)) == expected
    assert asyncio.run(router.remove(7)) == expected


def test_a_log_is_read_from_the_one_that_has_it() -> None:
    router = Router({"local": Recorder(), "ssh": Recorder(log_data=b"here")})
    assert asyncio.run(router.log(RunId(7, 1), 0, 0, 10)).data == b"here"


def test_all_are_observed_and_one_that_breaks_is_not_passed_over_in_silence() -> None:
    seen = [NodeSeen(node=Node(name=name), at_s=1.0) for name in ("a", "b")]
    router = Router({"local": Recorder(sees=(seen[0],)), "ssh": Recorder(sees=(seen[1],), fails=True)})
    found: list[Observation] = []

    async def observe() -> None:
        async for item in router.observe([]):
            found.append(item)

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(observe())
    assert found == seen


def test_an_executor_is_asked_for_more_only_when_the_last_was_noted() -> None:
    first, second = (NodeSeen(node=Node(name=name), at_s=1.0) for name in "ab")
    asked: list[str] = []

    class Telling(Recorder):
        async def observe(self, known: Sequence[RunId]) -> AsyncIterator[Observation]:
            yield first
            asked.append("after the first")
            yield second

    async def play() -> None:
        seen = Router({"local": Telling()}).observe([])
        assert await anext(seen) == first
        for _ in range(5):
            await asyncio.sleep(0)
        assert asked == []
        assert await anext(seen) == second
        assert asked == ["after the first"]
        await seen.aclose()  # type: ignore[attr-defined]

    asyncio.run(play())
