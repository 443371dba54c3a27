"""What becomes of a run that cannot be started."""

from __future__ import annotations

import asyncio
import errno
from unittest.mock import Mock

import pytest

from swell.core import events as ev
from swell.core.events import ExitReason
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import replay
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.core.state import JobRecord
from swell.daemon.effects import Effects
from swell.ports import Executor, Launch, RunGone


def planned() -> JobRecord:
    allocation = Allocation(parts=(Part(node="n1", gpus=(0,)),), gpu_type="gpu")
    events: list[ev.Event] = [
        ev.NodeObserved(node=Node(name="n1", gpus=(Gpu(index=0),)), at_s=0.0),
        ev.JobSubmitted(job=1, spec=JobSpec(name="j", command=("true",)), at_s=0.0),
        ev.RunPlanned(run=RunId(1, 1), allocation=allocation, at_s=1.0),
    ]
    return replay(events).jobs[1]


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
