"""What becomes of a run that cannot be started."""

from __future__ import annotations

import asyncio
import errno
from typing import cast
from unittest.mock import Mock

import pytest

from swell.core import events as ev
from swell.core.events import ExitReason
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import replay
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.core.state import JobRecord
from swell.daemon.effects import LAUNCHES_AT_ONCE, Effects
from swell.ports import Executor, Launch, RunGone


def planned(*nodes: str, job: int = 1) -> JobRecord:
    parts = tuple(Part(node=node, gpus=(0,)) for node in nodes or ("n1",))
    allocation = Allocation(parts=parts, gpu_type="gpu")
    events: list[ev.Event] = [
        *(ev.NodeObserved(node=Node(name=part.node, gpus=(Gpu(index=0),)), at_s=0.0) for part in parts),
        ev.JobSubmitted(job=job, spec=JobSpec(name="j", command=("true",)), at_s=0.0),
        ev.RunPlanned(run=RunId(job, 1), allocation=allocation, at_s=1.0),
    ]
    return replay(events).jobs[job]


class SlowNodes:
    """An executor whose launches end when they are let."""

    def __init__(self) -> None:
        self.under_way: list[int] = []
        self.go = asyncio.Event()

    async def launch(self, launch: Launch) -> None:
        self.under_way.append(launch.run.job)
        await self.go.wait()


async def launched(effects: Effects, slow: SlowNodes, expected: int) -> None:
    """Until so many launches are under way."""
    async with asyncio.timeout(10):
        while len(slow.under_way) < expected:
            await asyncio.sleep(0.001)


def effects_on(slow: SlowNodes) -> Effects:
    def launch_of(record: JobRecord) -> Launch:
        assert record.run is not None
        return Launch(run=record.run.id, workers=(), grace_s=1.0)

    async def failed(gone: RunGone) -> None:
        raise AssertionError(gone)

    return Effects(cast(Executor, slow), launch_of, failed, lambda: 7.0)


def test_a_slow_node_delays_launches_on_no_other_node() -> None:
    async def scene() -> None:
        slow = SlowNodes()
        effects = effects_on(slow)
        for job in range(1, 41):
            effects.launch(planned("slow", job=job))
        await launched(effects, slow, LAUNCHES_AT_ONCE)
        for job in range(41, 61):
            effects.launch(planned(f"n{job}", job=job))
        await launched(effects, slow, LAUNCHES_AT_ONCE + 20)
        assert sorted(slow.under_way) == [*range(1, LAUNCHES_AT_ONCE + 1), *range(41, 61)]
        slow.go.set()
        await effects.settle()
        assert len(slow.under_way) == 60

    asyncio.run(scene())


def test_runs_on_the_same_nodes_never_wait_for_each_other_for_ever() -> None:
    async def scene() -> None:
        slow = SlowNodes()
        slow.go.set()
        effects = effects_on(slow)
        for job in range(1, 4 * LAUNCHES_AT_ONCE):
            effects.launch(planned(*(("a", "b") if job % 2 else ("b", "a")), job=job))
        async with asyncio.timeout(10):
            await effects.settle()
        assert len(slow.under_way) == 4 * LAUNCHES_AT_ONCE - 1

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), ExitReason.NODE_FULL),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), ExitReason.NODE_FULL),
        (OSError(errno.EACCES, "Permission denied"), ExitReason.START_FAILED),
        (ValueError("no such launcher"), ExitReason.START_FAILED),
    ],
)
def test_a_full_disk_is_told_apart_from_a_job_that_cannot_start(error: Exception, reason: ExitReason) -> None:
    told: list[RunGone] = []

    def launch_of(_: JobRecord) -> Launch:
        raise error

    async def failed(gone: RunGone) -> None:
        told.append(gone)

    async def scene() -> None:
        effects = Effects(Mock(spec=Executor), launch_of, failed, lambda: 7.0)
        effects.launch(planned())
        await effects.settle()

    asyncio.run(scene())
    assert [(gone.reason, gone.at_s) for gone in told] == [(reason, 7.0)]
    assert str(error) in told[0].message
