"""One suite for every executor: told twice, done once; the truth after any restart; nothing left behind."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from contract.executor_benches import BENCHES, RUN, Bench, Unready, Watcher, launch_of, watching
from swell.core.events import ExitReason
from swell.core.ids import RunId
from swell.core.observations import FilesFound, Observation, RunGone, RunUp
from swell.ports import Done, Refused


@pytest.fixture(params=sorted(BENCHES))
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = BENCHES[request.param](tmp_path)
    yield made
    asyncio.run(_kill_everything(made))


async def _kill_everything(bench: Bench) -> None:
    executor = bench.executor()
    for attempt in range(1, 4):
        await executor.signal(RunId(RUN.job, attempt), kill=True)


@pytest.mark.parametrize(
    ("act", "reason", "code", "message"),
    [
        ("finish", ExitReason.FINISHED, 0, ""),
        ("fail", ExitReason.USER_ERROR, 3, "exit code 3: ValueError: no such layer"),
        ("stopped", ExitReason.STOPPED, 85, ""),
        ("killed", ExitReason.KILLED, None, "ended by SIGSEGV"),
    ],
)
def test_a_run_is_up_and_then_gone_with_its_reason(
    bench: Bench, act: str, reason: ExitReason, code: int | None, message: str
) -> None:
    async def play() -> None:
        async with watching(bench) as watch:
            await watch.executor.launch(launch_of(bench, act))
            gone = await watch.until(RunGone)
            assert (gone.reason, gone.exit_code, gone.message) == (reason, code, message)
            up = await watch.until(RunUp)
            assert up.at_s <= gone.at_s
            assert watch.of() == ["RunUp", "RunGone"]

    asyncio.run(play())


def test_what_cannot_start_is_never_up_and_says_why(bench: Bench) -> None:
    async def play() -> None:
        async with watching(bench) as watch:
            await watch.executor.launch(launch_of(bench, "missing"))
            gone = await watch.until(RunGone)
            assert gone.reason is ExitReason.START_FAILED
            assert "there is no such program" in gone.message
            assert watch.of() == ["RunGone"]

    asyncio.run(play())


def test_never_starts_twice_when_told_twice(bench: Bench) -> None:
    async def play() -> None:
        async with watching(bench) as watch:
            launch = launch_of(bench, "stay", "stay")
            await asyncio.gather(watch.executor.launch(launch), watch.executor.launch(launch))
            await watch.until(RunUp)
            await watch.executor.launch(launch)
            await watch.moments()
            assert watch.of() == ["RunUp"]
            assert bench.starts(RUN) == 1
            await watch.executor.signal(RUN, kill=True)
            await watch.until(RunGone)

    asyncio.run(play())


def assert_same_end(told: Observation, first: Observation) -> None:
    """Its time is told by the node's own clock: the same moment, but for the microseconds between two looks."""
    assert isinstance(told, RunGone)
    assert isinstance(first, RunGone)
    assert told.at_s == pytest.approx(first.at_s, abs=0.05)
    assert replace(told, at_s=first.at_s) == first


def test_launching_an_ended_run_never_starts_it_again_but_tells_its_end(bench: Bench) -> None:
    async def play() -> None:
        async with watching(bench) as watch:
            launch = launch_of(bench, "finish")
            await watch.executor.launch(launch)
            first = await watch.until(RunGone)
            await watch.executor.launch(launch)
            again = await watch.until(RunGone, count=2)
            assert_same_end(again, first)
            assert bench.starts(RUN) == 1

    asyncio.run(play())


@pytest.mark.parametrize(("act", "kill"), [("stay", False), ("stay", True), ("deaf", False), ("polite", False)])
def test_a_signalled_run_has_stopped_whatever_it_left_with(bench: Bench, act: str, kill: bool) -> None:
    """Also one that ignores SIGTERM (killed after its grace) and one that answers it with exit code 0: not finished."""

    async def play() -> None:
        async with watching(bench) as watch:
            await watch.executor.launch(launch_of(bench, act))
            await watch.until(RunUp)
            await _until_log(watch, b"here\n")
            await watch.executor.signal(RUN, kill=kill)
            gone = await watch.until(RunGone)
            assert gone.reason is ExitReason.STOPPED

    asyncio.run(play())


async def _until_log(watch: Watcher, text: bytes, rank: int = 0) -> None:
    while (await watch.executor.log(RUN, rank, 0, 100)).data != text:
        await watch.bench.pass_time()


def test_signals_to_unknown_and_ended_runs_do_nothing(bench: Bench) -> None:
    async def play() -> None:
        async with watching(bench) as watch:
            await watch.executor.signal(RunId(99, 1), kill=True)
            await watch.executor.launch(launch_of(bench, "finish"))
            gone = await watch.until(RunGone)
            assert gone.reason is ExitReason.FINISHED
            await watch.executor.signal(RUN, kill=True)
            await watch.moments()
            assert [told for told in watch.told if isinstance(told, RunGone)] == [gone]

    asyncio.run(play())


def test_a_gang_ends_with_its_first_failure_and_names_the_rank(bench: Bench) -> None:
    async def play() -> None:
        async with watching(bench) as watch:
            await watch.executor.launch(launch_of(bench, "stay", "fail", "stay"))
            gone = await watch.until(RunGone)
            assert (gone.reason, gone.exit_code) == (ExitReason.USER_ERROR, 3)
            assert gone.message == "rank 1: exit code 3: ValueError: no such layer"

    asyncio.run(play())


def test_a_gang_waits_for_its_last_worker(bench: Bench) -> None:
    async def play() -> None:
        async with watching(bench) as watch:
            await watch.executor.launch(launch_of(bench, "finish", "stay"))
            await watch.until(RunUp)
            await watch.moments()
            assert watch.of() == ["RunUp"]
            await watch.executor.signal(RUN, kill=False)
            gone = await watch.until(RunGone)
            assert gone.reason is ExitReason.STOPPED

    asyncio.run(play())


def test_a_gang_of_which_one_cannot_start_is_stopped_whole(bench: Bench) -> None:
    async def play() -> None:
        async with watching(bench) as watch:
            await watch.executor.launch(launch_of(bench, "stay", "missing"))
            gone = await watch.until(RunGone)
            assert gone.reason is ExitReason.START_FAILED
            assert gone.message.startswith("rank 1: cannot start")
            assert "RunUp" not in watch.of()

    asyncio.run(play())


def test_another_executor_finds_the_truth_about_known_runs(bench: Bench) -> None:
    running, ended, never = RunId(7, 1), RunId(7, 2), RunId(7, 3)

    async def play() -> None:
        async with watching(bench) as watch:
            await watch.executor.launch(launch_of(bench, "stay", run=running))
            await watch.executor.launch(launch_of(bench, "fail", run=ended))
            await watch.until(RunUp, running)
            first = await watch.until(RunGone, ended)
        async with watching(bench, [running, ended, never]) as watch:
            assert_same_end(await watch.until(RunGone, ended), first)
            await watch.until(RunUp, running)
            await watch.moments()
            assert watch.adopted
            assert watch.of(running) == ["RunUp"]
            assert watch.of(never) == []
            await watch.executor.signal(running, kill=False)
            gone = await watch.until(RunGone, running)
            assert gone.reason is ExitReason.STOPPED
            assert bench.starts(running) == 1

    asyncio.run(play())


def test_a_log_is_read_by_offset_and_never_ends_before_its_worker(bench: Bench) -> None:
    async def play() -> None:
        async with watching(bench) as watch:
            await watch.executor.launch(launch_of(bench, "stay"))
            await watch.until(RunUp)
            await _until_log(watch, b"here\n")
            chunk = await watch.executor.log(RUN, 0, 0, 3)
            assert (chunk.data, chunk.offset, chunk.next_offset, chunk.end) == (b"her", 0, 3, False)
            chunk = await watch.executor.log(RUN, 0, 3, 100)
            assert (chunk.data, chunk.next_offset, chunk.end) == (b"e\n", 5, False)
            await watch.executor.signal(RUN, kill=True)
            await watch.until(RunGone)
            assert not (await watch.executor.log(RUN, 0, 0, 3)).end
            assert (await watch.executor.log(RUN, 0, 3, 100)).end
            assert (await watch.executor.log(RUN, 0, 5, 100)).end

    asyncio.run(play())


def test_every_command_that_is_carried_out_is_answered_done(bench: Bench) -> None:
    async def play() -> None:
        async with watching(bench) as watch:
            launch = launch_of(bench, "stay")
            assert await watch.executor.launch(launch) == Done()
            await watch.until(RunUp)
            assert await watch.executor.launch(launch) == Done()
            assert await watch.executor.resize(launch) == Done()
            assert await watch.executor.signal(RUN, kill=False) == Done()
            assert await watch.executor.signal(RUN, kill=True) == Done()
            await watch.until(RunGone)
            assert await watch.executor.signal(RUN, kill=True) == Done()

    asyncio.run(play())


def test_what_cannot_be_prepared_is_refused_with_its_error_and_nothing_of_it_is_told(bench: Bench) -> None:
    async def play() -> None:
        async with watching(bench) as watch:
            ready = launch_of(bench, "stay")
            order = Unready(record=ready.record, nodes=ready.nodes, launch=ready.launch)
            answer = await watch.executor.launch(order)
            assert isinstance(answer, Refused)
            assert answer.errno == errno.ENOSPC
            assert "No space left" in answer.why
            await watch.moments()
            assert watch.of() == []
            assert bench.starts(RUN) == 0

    asyncio.run(play())


def test_a_run_that_lives_is_never_refused_whatever_preparing_it_again_would_say(bench: Bench) -> None:
    """After a restart on a full disk the daemon sends its launch again."""

    async def play() -> None:
        async with watching(bench) as watch:
            ready = launch_of(bench, "stay")
            await watch.executor.launch(ready)
            await watch.until(RunUp)
        async with watching(bench, [RUN]) as watch:
            order = Unready(record=ready.record, nodes=ready.nodes, launch=ready.launch)
            assert await watch.executor.launch(order) == Done()
            await watch.until(RunUp)
            await watch.executor.signal(RUN, kill=True)
            assert (await watch.until(RunGone)).reason is ExitReason.STOPPED

    asyncio.run(play())


def test_a_run_that_is_stopped_while_it_is_launched_ends_as_stopped_and_is_not_begun_again(bench: Bench) -> None:
    async def play() -> None:
        async with watching(bench) as watch:
            launch = launch_of(bench, "stay")
            await asyncio.gather(watch.executor.launch(launch), watch.executor.signal(RUN, kill=True))
            await watch.executor.signal(RUN, kill=True)
            assert (await watch.until(RunGone)).reason is ExitReason.STOPPED
            await watch.executor.launch(launch)
            await watch.until(RunGone, count=2)
            assert bench.starts(RUN) <= 1

    asyncio.run(play())


async def _kept(bench: Bench) -> tuple[int, ...]:
    """What another executor finds when it begins to observe."""
    async with watching(bench, nodes=True) as watch:
        while True:
            for told in watch.told:
                if isinstance(told, FilesFound):
                    return told.jobs
            await bench.pass_time()


def test_a_removed_job_leaves_nothing_and_removing_twice_is_harmless(bench: Bench) -> None:
    later, other = RunId(RUN.job, 2), RunId(RUN.job * 10 + 1, 1)

    async def play() -> None:
        async with watching(bench) as watch:
            for run in (RUN, later, other):
                await watch.executor.launch(launch_of(bench, "finish", run=run))
                await watch.until(RunGone, run)
            assert await _kept(bench) == (RUN.job, other.job)
            assert await watch.executor.remove(RUN.job) == Done()
            assert await watch.executor.remove(RUN.job) == Done()
            assert await _kept(bench) == (other.job,)
            for run in (RUN, later):
                assert (await watch.executor.log(run, 0, 0, 10)).data == b""
            assert (await watch.executor.log(other, 0, 0, 10)).data == b"one\ntwo\n"

    asyncio.run(play())


def test_never_removes_a_job_that_has_a_run_that_is_not_over(bench: Bench) -> None:
    async def play() -> None:
        async with watching(bench) as watch:
            await watch.executor.launch(launch_of(bench, "stay"))
            await watch.until(RunUp)
            await watch.executor.remove(RUN.job)
            assert await _kept(bench) == (RUN.job,)
            await _until_log(watch, b"here\n")
            await watch.executor.signal(RUN, kill=True)
            await watch.until(RunGone)

    asyncio.run(play())


def test_a_resize_in_place_keeps_the_run_going(bench: Bench) -> None:
    async def play() -> None:
        async with watching(bench) as watch:
            launch = launch_of(bench, "stay")
            await watch.executor.launch(launch)
            await watch.until(RunUp)
            await watch.executor.resize(launch)
            await watch.moments()
            assert watch.of() == ["RunUp"]
            await watch.executor.signal(RUN, kill=True)
            await watch.until(RunGone)

    asyncio.run(play())
