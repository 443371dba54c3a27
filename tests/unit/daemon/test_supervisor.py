"""Background tasks: a death is logged, shown and mended; cancellation and the loss of the database are neither."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from swell.core.errors import StoreFenced
from swell.daemon.supervisor import Supervisor


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


def test_a_task_that_dies_is_logged_with_its_cause_shown_and_started_again(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        tasks, lives = Supervisor(first_pause_s=0.01), []

        async def work() -> None:
            lives.append(tasks.down("w"))
            if len(lives) < 3:
                raise OSError("the cable is out")
            await asyncio.Event().wait()

        tasks.start("w", work)
        await until(lambda: tasks.down("w"))
        assert "cable" in tasks.deaths["w"].why
        await until(lambda: len(lives) == 3)
        assert lives == [False] * 3
        assert (tasks.deaths["w"].deaths, tasks.deaths["w"].down) == (2, False)
        await tasks.stop()

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert caplog.text.count("task w died") == 2
    assert "OSError: the cable is out" in caplog.text


def test_pauses_between_deaths_in_a_row_double_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    real_sleep = asyncio.sleep

    async def no_sleep(delay_s: float) -> None:
        slept.append(delay_s)

    async def main() -> None:
        tasks = Supervisor(first_pause_s=1.0, max_pause_s=5.0)

        async def work() -> None:
            if len(slept) >= 5:
                await asyncio.Event().wait()
            raise ValueError

        monkeypatch.setattr("swell.daemon.supervisor.asyncio.sleep", no_sleep)
        tasks.start("w", work)
        async with asyncio.timeout(5):
            while len(slept) < 5 or tasks.current("w") is None:
                await real_sleep(0)
        await tasks.stop()

    asyncio.run(main())
    assert slept == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_a_task_that_returns_or_is_cancelled_from_outside_is_dead_too() -> None:
    async def main() -> None:
        tasks, lives = Supervisor(first_pause_s=0.0), []

        async def work() -> None:
            lives.append(1)
            if len(lives) > 1:
                await asyncio.Event().wait()

        tasks.start("w", work)
        await until(lambda: len(lives) == 2)
        assert "returned" in tasks.deaths["w"].why
        current = tasks.current("w")
        assert current is not None
        current.cancel()
        await until(lambda: len(lives) == 3)
        assert "cancelled" in tasks.deaths["w"].why
        await tasks.stop()

    asyncio.run(main())


def test_the_loss_of_the_database_is_passed_on_and_nothing_is_started_again() -> None:
    async def main() -> None:
        tasks, lives = Supervisor(first_pause_s=0.0), []

        async def work() -> None:
            lives.append(1)
            raise StoreFenced("taken over by another daemon")

        tasks.start("w", work)
        assert "another daemon" in str(await asyncio.wait_for(tasks.lost(), 5))
        await tasks.stop()
        assert lives == [1]

    asyncio.run(main())


def test_stop_waits_until_every_task_has_cleaned_up() -> None:
    async def main() -> list[str]:
        tasks, done = Supervisor(), []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                done.append("cleaned")

        tasks.start("w", work)
        await until(lambda: tasks.current("w"))
        await asyncio.sleep(0)
        stopping = asyncio.ensure_future(tasks.stop())
        await until(stopping.done)
        return done

    assert asyncio.run(main()) == ["cleaned"]
