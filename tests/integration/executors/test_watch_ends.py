"""An executor that is told to stop watching stops, whatever it hears at that moment."""

import asyncio
from pathlib import Path

import pytest

from contract.executor_benches import LocalBench, watching


@pytest.mark.parametrize("steps", range(5))
def test_a_watch_that_is_cancelled_as_news_comes_in_ends(tmp_path: Path, steps: int) -> None:
    async def scene() -> bool:
        async with watching(LocalBench(tmp_path)) as observing:
            here = observing.executor._floor.here  # type: ignore[attr-defined]  # the executor of this machine
            while here.watch is None:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)  # until it waits for news
            here.wake.set()
            for _ in range(steps):
                await asyncio.sleep(0)
            here.watch.cancel()
            ended, _ = await asyncio.wait({here.watch}, timeout=10)
            return bool(ended)

    assert asyncio.run(scene())
