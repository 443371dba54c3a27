"""What reads the logs of jobs keeps a process for their patterns only as long as there are some."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from swell.core.ids import RunId
from swell.core.progress_track import Track
from swell.core.state import State
from swell.daemon import logwatch
from swell.daemon.logwatch import Commit, LogWatch, ReadLog, _Reading
from swell.daemon.patterns import Patterns

RUN = RunId(1, 1)


def watch() -> LogWatch:
    return LogWatch(State, cast(ReadLog, None), cast(Commit, None), lambda: 0.0)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    found: list[bool] = []

    async def stop(_: Patterns) -> None:
        found.append(True)

    monkeypatch.setattr(Patterns, "stop", stop)
    return found


def test_the_process_that_matches_patterns_ends_with_it(ended: list[bool]) -> None:
    async def scene() -> None:
        running = asyncio.create_task(watch().run())
        await asyncio.sleep(0)
        assert not ended
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scene())
    assert ended == [True]


def test_it_ends_with_the_last_run_that_has_patterns(ended: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logwatch, "EVERY_S", 0.0)

    async def scene() -> None:
        found = watch()
        found._readings = {RUN: _Reading(patterns=(r"loss (?P<loss>\d)",), timed_from_s=0.0, track=Track())}
        running = asyncio.create_task(found.run())
        async with asyncio.timeout(10):
            while not ended:
                await asyncio.sleep(0)
        assert not running.done(), "it goes on, and starts another when one is needed"
        assert not found._readings
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scene())
