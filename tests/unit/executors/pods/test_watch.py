"""The copy of a cluster's objects: current after an expired watch and after an outage, whatever was missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from swell.executors.kubernetes import watch
from swell.executors.kubernetes.api import Expired
from swell.executors.kubernetes.watch import Reflector
from swell.executors.transport import Unreachable


class FakeApi:
    """A server whose watches end as they are told to."""

    def __init__(self) -> None:
        self.objects: dict[str, int] = {}
        self.version = 0
        self.watches: list[list[Any]] = []
        self.watched_from: list[str] = []

    def put(self, name: str, value: int) -> None:
        self.version += 1
        self.objects[name] = value

    async def get(self, path: str, **params: object) -> Any:
        items = [_item(name, value, self.version) for name, value in self.objects.items()]
        return {"items": items, "metadata": {"resourceVersion": str(self.version)}}

    async def watch(self, path: str, version: str) -> AsyncIterator[Mapping[str, Any]]:
        self.watched_from.append(version)
        for step in self.watches.pop(0) if self.watches else [asyncio.Event()]:
            if isinstance(step, asyncio.Event):
                await step.wait()
            elif isinstance(step, Exception):
                raise step
            elif callable(step):
                step()
            else:
                yield step


def _item(name: str, value: int, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "value": value}


def _event(kind: str, name: str, value: int, version: int) -> dict[str, Any]:
    return {"type": kind, "object": _item(name, value, version)}


def seen_after(api: FakeApi, done: Callable[[list[tuple[int, bool]]], bool]) -> list[tuple[int, bool]]:
    """What a reflector tells (value, gone) until `done`."""
    told: list[tuple[int, bool]] = []

    async def play() -> None:
        reflector = Reflector(
            api,  # type: ignore[arg-type]
            "/things",
            lambda data: int(data["value"]),
            lambda value, gone: told.append((value, gone)),
        )
        task = asyncio.create_task(reflector.run())
        async with asyncio.timeout(10):
            while not done(told):
                await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(play())
    return told


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "RETRY_S", 0.0)


def test_lists_first_and_then_tells_each_change_once() -> None:
    api = FakeApi()
    api.put("a", 1)
    api.watches = [[_event("ADDED", "b", 2, 2), _event("MODIFIED", "b", 2, 3), _event("DELETED", "a", 1, 4)]]
    assert seen_after(api, lambda told: (1, True) in told) == [(1, False), (2, False), (1, True)]


def test_an_expired_watch_is_listed_again_and_nothing_that_happened_meanwhile_is_lost() -> None:
    api = FakeApi()
    api.put("a", 1)

    def meanwhile() -> None:
        api.put("b", 2)
        del api.objects["a"]

    api.watches = [[meanwhile, Expired(410, "Expired", "too old resource version")]]
    assert seen_after(api, lambda told: (2, False) in told) == [(1, False), (1, True), (2, False)]
    assert api.watched_from[0] == "1"


def test_an_outage_is_survived_and_a_watch_that_ends_goes_on_from_where_it_was() -> None:
    api = FakeApi()
    api.put("a", 1)
    api.watches = [[_event("ADDED", "b", 2, 7)], [Unreachable("no answer")], [_event("ADDED", "c", 3, 9)]]
    seen_after(api, lambda told: (3, False) in told)
    assert api.watched_from[:2] == ["1", "7"]


def test_bookmarks_move_the_watch_on_and_tell_nothing() -> None:
    api = FakeApi()
    mark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "40"}}}
    api.watches = [[mark], [_event("ADDED", "c", 3, 41)]]
    assert seen_after(api, lambda told: (3, False) in told) == [(3, False)]
    assert api.watched_from[1] == "40"
