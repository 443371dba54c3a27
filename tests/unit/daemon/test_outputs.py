"""Outputs of ended jobs are copied once, and after a crash in between at the next start."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from swell.core import events as ev
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.lifecycle import replay
from swell.core.resources import Allocation, Part
from swell.core.state import JobRecord, State
from swell.daemon.outputs import Outputs

RUN = RunId(1, 1)
ALLOCATION = Allocation(parts=(Part(node="n", gpus=(0,)),), gpu_type="gpu")


class Bench:
    def __init__(self, *, outputs: tuple[str, ...] = ("*.pt",)) -> None:
        spec = JobSpec(name="one", command=("true",), outputs=outputs, outputs_to="/there" if outputs else "")
        self.state = replay(
            [ev.JobSubmitted(job=1, spec=spec, at_s=0.0), ev.RunPlanned(run=RUN, allocation=ALLOCATION, at_s=1.0)]
        )
        self.copied: list[int] = []
        self.problem: OSError | None = None

    def now(self) -> State:
        return self.state

    async def collect(self, record: JobRecord) -> ev.CopiedOutputs:
        self.copied.append(record.id)
        if self.problem:
            raise self.problem
        return ev.CopiedOutputs(into="/there", files=1)

    async def commit(self, events: Sequence[ev.Event]) -> None:
        replay(events, self.state)

    def end(self) -> ev.Event:
        event = ev.RunEnded(run=RUN, reason=ev.ExitReason.USER_ERROR, at_s=2.0)
        replay([event], self.state)
        return event

    async def settled(self, *told: ev.Event) -> None:
        outputs = Outputs(self.now, self.collect, self.commit, lambda: 3.0)
        outputs.happened(told)
        task = asyncio.create_task(outputs.run())
        for _ in range(200):
            await asyncio.sleep(0)
            record = self.state.jobs.get(1)
            if record is None or record.outputs is not None:
                break
            await asyncio.to_thread(lambda: None)
        task.cancel()


def test_outputs_of_a_failed_job_are_copied_once() -> None:
    bench = Bench()
    event = bench.end()
    asyncio.run(bench.settled(event, event))
    assert bench.copied == [1]
    assert bench.state.jobs[1].outputs == ev.CopiedOutputs(into="/there", files=1)


def test_what_a_crash_left_undone_is_done_at_the_next_start() -> None:
    bench = Bench()
    bench.end()
    asyncio.run(bench.settled())
    assert bench.copied == [1]
    asyncio.run(bench.settled())
    assert bench.copied == [1]


def test_a_disk_that_refuses_is_told() -> None:
    bench = Bench()
    bench.problem = OSError(28, "No space left on device")
    asyncio.run(bench.settled(bench.end()))
    outputs = bench.state.jobs[1].outputs
    assert outputs is not None
    assert "No space left" in outputs.problem


def test_a_job_without_outputs_is_left_alone() -> None:
    bench = Bench(outputs=())
    asyncio.run(bench.settled(bench.end()))
    assert bench.copied == []
