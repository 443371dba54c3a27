"""An API server in memory: objects, versions, watches, finalizers and graceful deletion as far as the executor uses
them, without kubelets: tests play those."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from swell.executors.kubernetes.api import Refusal
from swell.executors.transport import Unreachable


class FakeCluster:
    namespace = "default"

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 0
        self.changes: list[tuple[int, str, str, dict[str, Any]]] = []  # version, path of its kind, what, object
        self.changed = asyncio.Event()
        self.silent = False  # the next creation of a pod happens, or not, and is not answered
        self.refuses: Refusal | None = None  # creation of pods
        self.forbids: tuple[str, ...] = ()  # paths that may not be read begin so
        self.calls: list[str] = []

    # ---- what the executor calls ----

    async def get(self, path: str, **params: object) -> Any:
        self.calls.append(f"GET {path}")
        if path == "/version":
            return {}
        kind = path.rsplit("/", 1)[-1]
        if self.forbids and path.startswith(self.forbids):
            raise Refusal(403, "Forbidden", "no permission")
        if kind in ("nodes", "pods", "configmaps", "swelljobs", "resourcequotas", "localqueues"):
            found = [copy.deepcopy(one) for key, one in self.objects.items() if f"/{kind}/" in key]
            return {"items": found, "metadata": {"resourceVersion": str(self.version)}}
        return copy.deepcopy(self._found(path))

    async def create(self, path: str, body: Mapping[str, Any], **params: object) -> Any:
        key = f"{path}/{body['metadata']['name']}"
        self.calls.append(f"POST {key}")
        if path.endswith("/pods") and self.silent:
            raise Unreachable("no answer")
        if path.endswith("/pods") and self.refuses is not None:
            raise self.refuses
        if key in self.objects:
            raise Refusal(409, "AlreadyExists", "it is there")
        made = copy.deepcopy(dict(body))
        made["metadata"] = {**made["metadata"], "uid": f"uid-{self.version}"}
        self._put(key, made, "ADDED")
        return copy.deepcopy(made)

    async def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        self.calls.append(f"PATCH {path}")
        if path.endswith("/status"):
            path = path.removesuffix("/status")
            found = self._found(path)
            merged = {**found.get("status", {}), **body["status"]}
            found["status"] = {name: value for name, value in merged.items() if value is not None}
            self._put(path, found, "MODIFIED")
            return
        found = self._found(path)
        meta = found["metadata"]
        if "spec" in body:
            found["spec"] = patched(found["spec"], body["spec"])
        for name, value in body.get("metadata", {}).items():
            meta[name] = {**(meta.get(name) or {}), **value} if isinstance(value, dict) else value
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            self._drop(path)
        else:
            self._put(path, found, "MODIFIED")

    async def delete(self, path: str, grace_s: int | None = None, uid: str = "") -> None:
        self.calls.append(f"DELETE {path}")
        assert grace_s != 0, "never by force"
        found = self.objects.get(path)
        if found is None:
            return
        if found["metadata"].get("finalizers"):
            found["metadata"] |= {"deletionTimestamp": "2027-01-15T08:00:30Z", "deletionGracePeriodSeconds": 20}
            self._put(path, found, "MODIFIED")
        else:
            self._drop(path)

    async def watch(self, path: str, version: str) -> AsyncIterator[Mapping[str, Any]]:
        kind, seen = path.rsplit("/", 1)[-1], int(version)
        while True:
            for number, of, what, item in [change for change in self.changes if change[0] > seen]:
                seen = number
                if of == kind:
                    yield {"type": what, "object": item}
            self.changed.clear()
            await self.changed.wait()

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], *, spare: bool = False
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        raise Refusal(400, "BadRequest", "no log")
        yield  # type: ignore[unreachable]

    async def close(self) -> None:
        """Nothing is open."""

    # ---- what tests play ----

    def add_node(self, data: dict[str, Any]) -> None:
        self._put(f"/api/v1/nodes/{data['metadata']['name']}", data, "ADDED")

    def put(self, path: str, item: dict[str, Any]) -> None:
        """As a person applies it."""
        self._put(path, item, "MODIFIED" if path in self.objects else "ADDED")

    def pods(self) -> list[str]:
        return [key for key in self.objects if "/pods/" in key]

    def report(self, pod: str, phase: str, *states: dict[str, Any], node: str = "a") -> None:
        """As its kubelet would."""
        found = self.objects[pod]
        found["spec"]["nodeName"] = node
        names = [container["name"] for container in found["spec"]["containers"]]
        statuses = [
            {"name": name, "state": state, "started": "running" in state}
            for name, state in zip(names, states, strict=True)
        ]
        found["status"] = {"phase": phase, "containerStatuses": statuses, "podIP": "10.0.0.9"}
        self._put(pod, found, "MODIFIED")

    def remove(self, path: str) -> None:
        """By force, as a person can."""
        self._drop(path)

    def _found(self, path: str) -> dict[str, Any]:
        if path not in self.objects:
            raise Refusal(404, "NotFound", f"there is no {path}")
        return self.objects[path]

    def _put(self, key: str, item: dict[str, Any], what: str) -> None:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = item
        self._tell(key, item, what)

    def _drop(self, key: str) -> None:
        self.version += 1
        item = self.objects.pop(key)
        item["metadata"]["resourceVersion"] = str(self.version)
        self._tell(key, item, "DELETED")

    def _tell(self, key: str, item: dict[str, Any], what: str) -> None:
        self.changes.append((self.version, key.rsplit("/", 2)[-2], what, copy.deepcopy(item)))
        self.changed.set()


def patched(base: Any, over: Any) -> Any:
    """As a merge patch does."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return copy.deepcopy(over)
    return {**base, **{name: patched(base.get(name), value) for name, value in over.items()}}
