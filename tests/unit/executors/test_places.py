"""The machines of an executor: which of them are looked at, and what the daemon's own one has."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

from contract.executor_benches import RealClock
from swell.core.ids import RunId
from swell.executors.inventory import Machine, Probe
from swell.executors.local import LocalExecutor
from swell.executors.places import Floor, Place
from swell.executors.tracking import Tracked, Tuning
from swell.executors.transport import Transport
from swell.executors.verdict import Member, Roster
from swell.ports import Launch, Order

RUN = RunId(7, 1)


def place(name: str) -> Place:
    return Place(name=name, transport=cast(Transport, None))


def test_a_hint_about_a_run_has_its_machines_looked_at_now_and_no_others() -> None:
    floor = Floor(RealClock(), Tuning(), place(""))
    floor.others = {name: place(name) for name in ("a", "b")}
    floor.tracked[RUN] = Tracked(roster=Roster(run=RUN, members=(Member(rank=0, node="a"),), grace_s=1.0))
    floor.hint(RUN)
    floor.hint(RunId(8, 1))
    assert [one.name for one in floor.places() if one.wake.is_set()] == ["a"]
    assert list(floor.others["a"].dirty) == [RUN]


def test_slots_that_are_declared_are_there_at_once(tmp_path: Path) -> None:
    def never(_: Order) -> Launch:
        raise AssertionError

    async def scene() -> None:
        machine = Machine(RealClock(), name="here", gpus=1, probe=Probe(no_containers=lambda: ""))
        executor = LocalExecutor(tmp_path, RealClock(), never, machine=machine)
        assert [len((await executor.declare(count)).gpus) for count in (1, 3)] == [1, 3]

    asyncio.run(scene())
