"""SwellJob objects against an API server in memory: one object is one job, whatever goes wrong in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from integration.api.conftest import FakeEngine
from swell.core import events as ev
from swell.executors.kubernetes.api import Refusal
from swell.executors.transport import Unreachable
from swell.swelljobs import controller
from swell.swelljobs.controller import SwellJobs
from swell.swelljobs.resource import FINALIZER
from unit.executors.pods.fake_cluster import FakeCluster

PATH = "/apis/swell.dev/v1/namespaces/default/swelljobs"
SPEC = {"command": "true", "image": "i"}


class Scene:
    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.cluster.objects["/apis/swell.dev/v1"] = {"metadata": {}}
        self.engine = FakeEngine()
        self.swell_jobs = SwellJobs(self.cluster, self.engine, "mine")  # type: ignore[arg-type]
        self.engine.watchers.append(self.swell_jobs.happened)

    def apply(self, name: str = "a", spec: dict[str, Any] = SPEC, **meta: object) -> None:
        meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 1, **meta}
        self.cluster.put(f"{PATH}/{name}", {"metadata": meta, "spec": spec})

    def status(self, name: str = "a") -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.objects[f"{PATH}/{name}"].get("status", {})
        return found

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0)


def play(scene_of: Callable[[Scene], Awaitable[None]]) -> None:
    async def whole() -> None:
        scene = Scene()
        task = asyncio.create_task(scene.swell_jobs.run())
        try:
            await scene_of(scene)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(whole())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "REFRESH_S", 0.01)
    monkeypatch.setattr(controller, "ABSENT_S", 0.01)


def test_an_object_becomes_a_job_and_shows_what_became_of_it() -> None:
    async def scene_of(scene: Scene) -> None:
        scene.apply()
        await scene.until(lambda: scene.status().get("state") == "Queued")
        assert scene.status()["job"] == 1
        assert FINALIZER in scene.cluster.objects[f"{PATH}/a"]["metadata"]["finalizers"]
        scene.engine.record(ev.JobCancelled(job=1, at_s=scene.engine.now, by="x", reason=""))
        await scene.until(lambda: scene.status()["state"] == "Cancelled")
        assert len(scene.engine.state.jobs) == 1

    play(scene_of)


def test_a_status_that_was_not_written_is_not_a_second_job(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene_of(scene: Scene) -> None:
        whole = scene.cluster.patch
        lost: list[str] = []

        async def patch(path: str, body: Any) -> Any:
            if path.endswith("/status") and len(lost) < 3:
                lost.append(path)
                raise Unreachable("no answer")
            return await whole(path, body)

        monkeypatch.setattr(scene.cluster, "patch", patch)
        scene.apply()
        await scene.until(lambda: scene.status().get("job") == 1)
        assert len(lost) == 3
        assert list(scene.engine.state.jobs) == [1]

    play(scene_of)


def test_what_is_wrong_is_in_its_status_and_can_be_mended() -> None:
    async def scene_of(scene: Scene) -> None:
        scene.apply(spec={"command": "true", "gpuz": 1})
        await scene.until(lambda: scene.status().get("state") == "Refused")
        assert "gpuz" in scene.status()["message"]
        mended = scene.cluster.objects[f"{PATH}/a"]
        mended["spec"] = SPEC
        scene.cluster.put(f"{PATH}/a", mended)
        await scene.until(lambda: scene.status().get("state") == "Queued")

    play(scene_of)


def test_an_object_of_another_swell_is_left_alone() -> None:
    async def scene_of(scene: Scene) -> None:
        scene.apply("theirs", annotations={"swell/cluster": "another"})
        scene.apply("ours")
        await scene.until(lambda: scene.status("ours").get("job"))
        assert scene.status("theirs") == {}
        assert len(scene.engine.state.jobs) == 1

    play(scene_of)


def test_deleting_it_cancels_the_job_and_the_object_goes_when_the_job_has_ended() -> None:
    async def scene_of(scene: Scene) -> None:
        scene.apply()
        await scene.until(lambda: scene.status().get("job"))
        await scene.cluster.delete(f"{PATH}/a")
        await scene.until(lambda: f"{PATH}/a" not in scene.cluster.objects)
        assert scene.engine.state.jobs[1].state == "cancelled"

    play(scene_of)


def test_a_job_that_was_removed_by_hand_does_not_come_back() -> None:
    async def scene_of(scene: Scene) -> None:
        scene.apply()
        await scene.until(lambda: scene.status().get("job"))
        scene.engine.record(ev.JobCancelled(job=1, at_s=1.0, by="x", reason=""), ev.JobRemoved(job=1, at_s=2.0, by="x"))
        await scene.until(lambda: scene.status()["state"] == "Removed")
        assert not scene.engine.state.jobs

    play(scene_of)


def test_a_cluster_without_the_resource_is_asked_again_later() -> None:
    async def scene_of(scene: Scene) -> None:
        installed = scene.cluster.objects.pop("/apis/swell.dev/v1")
        scene.apply()
        with pytest.raises(Refusal):
            await scene.cluster.get("/apis/swell.dev/v1")
        assert scene.status() == {}
        scene.cluster.objects["/apis/swell.dev/v1"] = installed
        await scene.until(lambda: scene.status().get("job"))

    play(scene_of)
