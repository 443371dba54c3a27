"""Keeps a current copy of one kind of object of the cluster: list, then watch; list again when a watch has expired,
after an outage, and regularly, in case a watch has missed something."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from swell.executors.kubernetes.api import Api, Expired
from swell.executors.transport import Unreachable

log = logging.getLogger(__name__)
T = TypeVar("T")

PAGE = 500
RESYNC_S = 600.0
RETRY_S, MAX_RETRY_S = 0.5, 10.0


class Reflector(Generic[T]):
    """`items` by `namespace/name`. `changed` is called with each new value, or the last one if gone (gone=True)."""

    def __init__(
        self, api: Api, path: str, parse: Callable[[Mapping[str, Any]], T], changed: Callable[[T, bool], None]
    ) -> None:
        self._api = api
        self._path = path
        self._parse = parse
        self._changed = changed
        self._version = ""
        self._listed_s = 0.0
        self.items: dict[str, T] = {}
        self.synced = asyncio.Event()
        self.lists = 0

    async def run(self) -> None:
        """Until cancelled."""
        wait_s = RETRY_S
        while True:
            try:
                if not self._version or _now_s() > self._listed_s + RESYNC_S:
                    await self._list()
                    wait_s = RETRY_S
                async for event in self._api.watch(self._path, self._version):
                    self._apply(event)
            except Expired:
                self._version = ""
            except OSError as error:
                how = log.warning if isinstance(error, Unreachable) else log.error
                how("watching %s: %s; again in %.1f s", self._path, error, wait_s)
                await asyncio.sleep(wait_s)
                wait_s, self._version = min(MAX_RETRY_S, 2 * wait_s), ""

    async def _list(self) -> None:
        """Read all pages before applying any, so that an outage in between changes nothing."""
        found: dict[str, T] = {}
        page = await self._api.get(self._path, limit=PAGE)
        while True:
            found.update((_key(item), self._parse(item)) for item in page["items"])
            rest = page["metadata"].get("continue")
            if not rest:
                break
            page = await self._api.get(self._path, limit=PAGE, **{"continue": rest})
        before, self.items = self.items, found
        self._version, self._listed_s = page["metadata"]["resourceVersion"], _now_s()
        self.lists += 1
        self.synced.set()
        for key, value in before.items():
            if key not in found:
                self._changed(value, True)
        for key, value in found.items():
            if before.get(key) != value:
                self._changed(value, False)

    def _apply(self, event: Mapping[str, Any]) -> None:
        self._version = event["object"]["metadata"]["resourceVersion"]
        if event["type"] == "BOOKMARK":
            return
        key, value = _key(event["object"]), self._parse(event["object"])
        if event["type"] == "DELETED":
            self.items.pop(key, None)
            self._changed(value, True)
        elif self.items.get(key) != value:  # most updates are heartbeats, which change nothing that is read
            self.items[key] = value
            self._changed(value, False)


def _key(item: Mapping[str, Any]) -> str:
    meta = item["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"


def _now_s() -> float:
    return asyncio.get_running_loop().time()
