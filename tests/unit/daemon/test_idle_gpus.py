"""What machines measure of their GPUs: shown as means, judged by every measurement, forgotten when it is old."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from swell.core.events import Event, JobPaused, JobUpdated, RunStopRequested
from swell.core.idle import GpuUse, IdleRules
from swell.core.job import GpuRequest
from swell.core.lifecycle import replay
from swell.core.observations import GpusMeasured
from swell.core.state import State
from swell.daemon.idle_gpus import STALE_S, IdleGpus
from swell.daemon.series import GPU_PERCENT, RecentSeries
from unit.plan.test_idle import running


class Scene:
    def __init__(self, state: State, rules: IdleRules) -> None:
        self.state, self.s = state, 100.0
        self.series = RecentSeries()
        self.done: list[Event] = []
        self.idle = IdleGpus(lambda: self.state, self.do, self.series, self, rules)

    def now_s(self) -> float:
        return self.s

    def monotonic_s(self) -> float:
        return self.s

    async def do(self, events: Sequence[Event]) -> None:
        self.done += events
        replay(events, self.state)

    def measure(self, *percents: float | None, for_s: float = 0.0) -> None:
        """Every 3 s, as a machine does."""
        until_s = self.s + for_s
        while True:
            use = {index: GpuUse(percent=percent, memory_mib=1000) for index, percent in enumerate(percents)}
            self.idle.measured(GpusMeasured(node="a", use=use, at_s=self.s))
            if self.s >= until_s:
                return
            self.s += 3.0

    def look(self) -> None:
        asyncio.run(self.idle.look())


def test_one_busy_moment_begins_the_wait_anew() -> None:
    scene = Scene(running(0, 1), IdleRules(warn_after_s=60.0))
    scene.measure(0, 90, for_s=60.0)
    assert scene.idle.jobs()[1].gpus == 1
    scene.measure(50, 90)
    assert scene.idle.jobs() == {}
    scene.s += 3.0
    scene.measure(4.9, 90, for_s=57.0)
    assert scene.idle.jobs() == {}
    scene.measure(0, 90, for_s=3.0)
    assert scene.idle.jobs()[1].words(scene.s).startswith("1 of its 2 GPUs")


def test_what_the_driver_does_not_report_is_not_idle() -> None:
    scene = Scene(running(0), IdleRules(warn_after_s=60.0))
    scene.measure(None, for_s=600.0)
    assert scene.idle.jobs() == {}


def test_a_machine_that_was_away_proves_nothing() -> None:
    scene = Scene(running(0), IdleRules(warn_after_s=60.0))
    scene.measure(0, for_s=90.0)
    scene.s += STALE_S + 1
    assert scene.idle.jobs() == {}, "nobody knows what it does now"
    scene.measure(0)
    assert scene.idle.jobs() == {}, "nor what it did meanwhile"
    scene.look()
    assert scene.idle.use
    scene.s += STALE_S + 1
    scene.look()
    assert scene.idle.use == {}


def test_means_are_shown_and_charted_and_are_the_same_object_while_nothing_changes() -> None:
    scene = Scene(running(0, 1), IdleRules())
    scene.measure(10, 80)
    scene.measure(30, 80)
    scene.look()
    shown = scene.idle.use
    assert shown == {("a", 0): GpuUse(percent=20, memory_mib=1000), ("a", 1): GpuUse(percent=80, memory_mib=1000)}
    assert scene.series.of(1)[GPU_PERCENT] == ((100.0, 50.0),)
    scene.measure(20, 80)
    scene.look()
    assert scene.idle.use is shown


def test_measurements_alone_are_no_events() -> None:
    scene = Scene(running(0), IdleRules(warn_after_s=60.0))
    scene.measure(0, for_s=600.0)
    scene.look()
    assert scene.idle.jobs()
    assert scene.done == []


def test_a_job_is_limited_to_what_it_uses_and_then_left_alone() -> None:
    scene = Scene(running(0, 1, 2, gpus=GpuRequest(min=1, max=4, start=3)), IdleRules(shrink_after_s=60.0))
    scene.measure(0, 70, 0, for_s=60.0)
    scene.look()
    scene.look()
    (updated,) = scene.done
    assert isinstance(updated, JobUpdated)
    assert updated.gpus == GpuRequest(min=1, max=1, start=1)
    assert updated.by == "swell"


def test_a_job_whose_gpus_all_idle_is_paused_with_the_reason() -> None:
    scene = Scene(running(0), IdleRules(suspend_after_s=60.0))
    scene.measure(0, for_s=60.0)
    scene.look()
    paused, stop = scene.done
    assert isinstance(paused, JobPaused)
    assert isinstance(stop, RunStopRequested)
    assert stop.reason == "its GPU has been idle for 60 s"
    scene.look()
    assert len(scene.done) == 2
