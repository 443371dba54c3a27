"""Stops of trainings: the verdict of the ranks against a withdrawal, whichever is on disk first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from swell.core import events as ev
from swell.core.agreement import Position, StopPoint
from swell.core.errors import InvalidTransition
from swell.core.events import Event, StopWhy
from swell.core.ids import RunId
from swell.core.job import JobSpec
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.core.state import JobState
from swell.daemon.committer import Committer
from swell.daemon.reports import RankStatus
from swell.daemon.stops import Stops
from swell.speed.book import Book
from swell.store.journal import Journal
from swell.store.memory import MemoryStore

RUN = RunId(1, 1)
ALLOCATION = Allocation(parts=(Part(node="n1", gpus=(0, 1)),), gpu_type="gpu")
LIFE: list[Event] = [
    ev.NodeObserved(node=Node(name="n1", gpus=(Gpu(index=0), Gpu(index=1))), at_s=0.0),
    ev.JobSubmitted(job=1, spec=JobSpec(name="j", command=("x",), uses_library=True, epochs=100), at_s=0.0),
    ev.RunPlanned(run=RUN, allocation=ALLOCATION, at_s=1.0),
    ev.RunStarted(run=RUN, at_s=2.0),
    ev.TrainingBegan(run=RUN, at_s=3.0, epochs=100),
]
ASKED = ev.RunStopRequested(run=RUN, why=StopWhy.RESIZING, at_s=10.0)
WITHDRAWN = ev.RunStopWithdrawn(run=RUN, at_s=20.0, reason="no checkpoint came")


def at_epoch_3(rank: int, ack: Position | None = None, terminating: bool = False) -> RankStatus:
    return RankStatus(rank=rank, world_size=2, position=(3, 0), ack=ack, terminating=terminating)


class StillClock:
    def now_s(self) -> float:
        return 50.0

    def monotonic_s(self) -> float:
        return asyncio.get_running_loop().time()


Scenario = Callable[[Committer, Stops], Awaitable[None]]


def play(scenario: Scenario, life: Sequence[Event] = (*LIFE, ASKED)) -> None:
    async def main() -> None:
        store = MemoryStore()
        committer = Committer(store, Journal(store), Book())
        await committer.open()
        stops = Stops(committer, StillClock())
        committer.listeners.append(stops.wake)
        await committer.commit(life)
        async with asyncio.timeout(10):
            await scenario(committer, stops)
        await committer.close()

    asyncio.run(main())


def test_a_rank_that_waits_hears_of_a_withdrawal_at_once_and_nobody_leaves() -> None:
    async def scenario(committer: Committer, stops: Stops) -> None:
        assert (await stops.heard(RUN, at_epoch_3(0))).stop is None, "the other rank has not spoken yet"
        asked = await stops.heard(RUN, at_epoch_3(1))
        assert asked.stop == StopPoint(at=(4, 0))
        waits = asyncio.create_task(stops.wait(RUN, RankStatus(rank=0, position=(3, 0), ack=(4, 0)), 30.0))
        await asyncio.sleep(0)
        await committer.commit([WITHDRAWN])
        assert (await waits).stop is None
        assert (await stops.heard(RUN, at_epoch_3(1, ack=(4, 0)))).stop is None, (
            "a promise that came too late is no verdict"
        )
        assert committer.state.jobs[1].state is JobState.RUNNING

    play(scenario)


@pytest.mark.parametrize(("why", "stops_at"), [(StopWhy.RESIZING, None), (StopWhy.PREEMPTED, (4, 0))])
def test_a_resize_spares_a_short_last_epoch_and_a_preemption_does_not(why: StopWhy, stops_at: Position | None) -> None:
    """Others wait for the GPUs of a preempted job; a resized one would only pay for a restart just before its end."""

    async def scenario(committer: Committer, stops: Stops) -> None:
        await stops.heard(RUN, at_epoch_3(0))
        found = (await stops.heard(RUN, at_epoch_3(1))).stop
        assert (found.at if found is not None else None) == stops_at

    short: list[Event] = [
        ev.TrainingBegan(run=RUN, at_s=3.0, epochs=5),
        ev.EpochEnded(run=RUN, at_s=9.0, epoch=3, count=3, epoch_s=2.0, gpus=2),
        ev.RunStopRequested(run=RUN, why=why, at_s=10.0),
    ]
    play(scenario, (*LIFE[:-1], *short))


def test_never_is_a_verdict_withdrawn_that_is_durable() -> None:
    async def scenario(committer: Committer, stops: Stops) -> None:
        for rank in (0, 1):
            await stops.heard(RUN, at_epoch_3(rank))
        for rank in (0, 1):
            told = await stops.heard(RUN, at_epoch_3(rank, ack=(4, 0)))
        assert told.stop == StopPoint(at=(4, 0), agreed=True)
        with pytest.raises(InvalidTransition):
            await committer.commit([WITHDRAWN])

    play(scenario)


def test_a_verdict_and_a_withdrawal_at_the_same_moment_never_both_hold() -> None:
    async def scenario(committer: Committer, stops: Stops) -> None:
        for rank in (0, 1):
            await stops.heard(RUN, at_epoch_3(rank))
        await stops.heard(RUN, at_epoch_3(0, ack=(4, 0)))
        withdrawal = asyncio.create_task(committer.commit([WITHDRAWN]))  # true at once, on disk and told later
        await asyncio.sleep(0)
        told = await stops.heard(RUN, at_epoch_3(1, ack=(4, 0)))
        await withdrawal
        assert told.stop is None
        assert committer.state.jobs[1].state is JobState.RUNNING

    play(scenario)


def test_a_run_that_is_asked_again_stops_above_what_was_promised_before() -> None:
    async def scenario(committer: Committer, stops: Stops) -> None:
        for rank in (0, 1):
            await stops.heard(RUN, at_epoch_3(rank))
        await committer.commit([WITHDRAWN])
        await committer.commit([ASKED])
        told = await stops.heard(RUN, at_epoch_3(0))
        assert told.stop is not None
        assert told.stop.at > (4, 0)

    play(scenario)


def test_ranks_that_were_sent_sigterm_leave_whoever_withdraws_what() -> None:
    async def scenario(committer: Committer, stops: Stops) -> None:
        for rank in (0, 1):
            await stops.heard(RUN, at_epoch_3(rank, terminating=True))
        await committer.commit([WITHDRAWN])
        for rank in (0, 1):
            told = await stops.heard(RUN, at_epoch_3(rank, ack=(4, 0), terminating=True))
        assert told.stop == StopPoint(at=(4, 0), agreed=True)

    play(scenario)


def by_steps(rank: int, ack: Position | None = None) -> RankStatus:
    return RankStatus(rank=rank, world_size=2, position=(0, 0), ack=ack, steps=True)


def test_a_training_that_saves_by_its_own_rule_keeps_its_verdict_when_nobody_waits_for_it_any_more() -> None:
    """It agrees at once and may come to a checkpoint in hours, or never. Whoever gets there leaves, so all must, also
    if the stop was withdrawn meanwhile, the daemon is another one, or a stop is requested again."""

    async def scenario(committer: Committer, stops: Stops) -> None:
        for rank in (0, 1):
            await stops.heard(RUN, by_steps(rank))
        for rank in (0, 1):
            told = await stops.heard(RUN, by_steps(rank, ack=(0, 2)))
        assert told.stop == StopPoint(at=(0, 2), agreed=True)
        await committer.commit([WITHDRAWN])
        assert committer.state.jobs[1].state is JobState.RUNNING
        for daemon in (stops, Stops(committer, StillClock())):
            assert (await daemon.heard(RUN, by_steps(1))).stop == told.stop
        await committer.commit([ASKED])
        for daemon in (stops, Stops(committer, StillClock())):
            assert (await daemon.heard(RUN, by_steps(1))).stop == told.stop
        await committer.commit([WITHDRAWN])
        assert committer.state.jobs[1].state is JobState.RUNNING

    began = ev.TrainingBegan(run=RUN, at_s=3.0, epochs=9000, unit="step", saves=ev.Saves.OWN)
    play(scenario, (*LIFE[:-1], began, ASKED))


def test_a_withdrawal_between_a_verdict_and_its_writing_changes_no_verdict() -> None:
    async def scenario(committer: Committer, stops: Stops) -> None:
        for rank in (0, 1):
            await stops.heard(RUN, by_steps(rank))
        await stops.heard(RUN, by_steps(0, ack=(0, 2)))
        last = asyncio.create_task(stops.heard(RUN, by_steps(1, ack=(0, 2))))
        while (run := committer.state.jobs[1].run) is None or run.stop is None or run.stop.agreed is None:
            await asyncio.sleep(0)
        await committer.commit([WITHDRAWN])
        await last
        for daemon in (stops, Stops(committer, StillClock())):
            assert (await daemon.heard(RUN, by_steps(0, ack=(0, 2)))).stop == StopPoint(at=(0, 2), agreed=True)

    began = ev.TrainingBegan(run=RUN, at_s=3.0, epochs=9000, unit="step", saves=ev.Saves.OWN)
    play(scenario, (*LIFE[:-1], began, ASKED))
