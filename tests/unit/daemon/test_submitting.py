"""Submissions that arrive twice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from swell.core.events import Event
from swell.core.job import GpuRequest, JobSpec
from unit.daemon.test_engine_tasks import world

SPEC = JobSpec(name="j", command=("true",), gpus=GpuRequest(min=1, max=1))


def test_one_that_is_sent_again_is_never_answered_before_the_first_is_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with world() as one:
            disk, append = threading.Event(), one.store.append

            def slowly(first_seq: int, events: Sequence[Event]) -> None:
                disk.wait(10)
                append(first_seq, events)

            monkeypatch.setattr(one.store, "append", slowly)
            first = asyncio.ensure_future(one.engine.submit([SPEC], key="k"))
            await one.until(lambda: "k" in one.engine.state.keys)
            again = asyncio.ensure_future(one.engine.submit([SPEC], key="k"))
            for _ in range(50):
                await asyncio.sleep(0)
            assert not first.done()
            assert not again.done()
            disk.set()
            assert await again == await first

    asyncio.run(main())
