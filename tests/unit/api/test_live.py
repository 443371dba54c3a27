"""The work behind open pages: there while somebody reads, and only for what pages show."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from swell.api.live import Live
from swell.api.port import Engine


def test_the_work_ends_with_the_last_reader() -> None:
    async def scene() -> None:
        live, begun = Live(), asyncio.Event()

        async def work() -> None:
            begun.set()
            await asyncio.Event().wait()

        task = live._work = asyncio.create_task(work())
        await begun.wait()
        resting = asyncio.create_task(live._rest())
        await asyncio.wait({resting}, timeout=5.0)  # does not cancel it, which would end the work as well
        assert resting.done()
        assert task.cancelled()
        assert live._work is None

    asyncio.run(scene())


def test_pages_hear_of_what_no_event_tells_when_it_changes_and_not_again() -> None:
    health: dict[str, Any] = {"degraded": "", "deciding": True}
    engine = SimpleNamespace(
        health=lambda: health, state=SimpleNamespace(nodes={}), now_s=lambda: 5.0, idle_gpus=SimpleNamespace(use={})
    )
    live = Live()
    live._changed_without_event(cast(Engine, engine))
    changed = [live._changed_without_event(cast(Engine, engine))]
    health["degraded"] = "the disk is full"
    changed += [live._changed_without_event(cast(Engine, engine)) for _ in range(2)]
    assert changed == [False, True, False]
