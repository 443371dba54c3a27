"""What one rank reports: learned once, also when its answer was lost and it is sent again; measurements are kept."""

from __future__ import annotations

import asyncio

from swell.core.events import EpochEnded
from swell.core.ids import RunId
from swell.core.job import GpuRequest, JobSpec
from swell.core.state import JobState
from swell.daemon.reports import Began, EpochReport, RunReport
from swell.executors.scripted import Script
from unit.daemon.test_engine_tasks import World

REPORT = RunReport(
    began=Began(epoch=0, epochs=10),
    epochs=(EpochReport(epoch=1, epoch_s=5.0), EpochReport(epoch=2, epoch_s=4.0)),
    series={"loss": ((1.0, 0.5), (2.0, 0.4))},
)


async def reported() -> tuple[list[EpochEnded], dict[str, tuple[tuple[float, float], ...]], int]:
    world = World(Script(lasts_s=1e9))
    engine = world.engine
    await engine.start()
    try:
        (job,) = await engine.submit([JobSpec(name="j", command=("x",), gpus=GpuRequest(), uses_library=True)])
        await world.until(lambda: engine.state.jobs[job].state is JobState.RUNNING)
        for report in (REPORT, REPORT, RunReport(epochs=(EpochReport(epoch=2, count=0, epoch_s=2.0),))):
            await engine.report(RunId(job, 1), report)
        events = [stored.event for stored in world.store.events()]
        return (
            [e for e in events if isinstance(e, EpochEnded)],
            dict(engine.series(job)),
            engine.state.jobs[job].epochs_done,
        )
    finally:
        await engine.stop()


def test_a_report_that_is_sent_again_is_not_learned_twice_and_part_of_an_epoch_is_kept() -> None:
    epochs, series, done = asyncio.run(reported())
    assert [(e.epoch, e.count) for e in epochs] == [(1, 1), (2, 1), (2, 0)]
    assert done == 2
    assert series == {"loss": ((1.0, 0.5), (2.0, 0.4))}
