"""What is done before Swell is removed from a cluster: the daemon stops first, then nothing is held any more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from swell.executors.kubernetes.api import Refusal
from swell.executors.kubernetes.objects import CLUSTER
from swell.executors.kubernetes.objects import FINALIZER as OF_POD
from swell.swelljobs import let_go
from swell.swelljobs.resource import FINALIZER
from unit.executors.pods.fake_cluster import FakeCluster

PODS = "/api/v1/namespaces/default/pods"
SWELLJOBS = "/apis/swell.dev/v1/namespaces/default/swelljobs"
DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/swell"


class Cluster(FakeCluster):
    """Lists by label; a daemon that is scaled to nothing has one pod, which ends when its deployment is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.replicas: int | None = 1

    async def get(self, path: str, **params: object) -> Any:
        found = await super().get(path, **params)
        if path == "/api/v1/pods" and let_go.DAEMON in str(params):
            left = [{"metadata": {"name": "swell-x", "namespace": "default"}}] if self.replicas else []
            elsewhere = {"metadata": {"name": "swell-y", "namespace": "another"}}
            self.replicas = 0 if self.replicas == -1 else self.replicas
            return {"items": [*left, elsewhere]}
        return found

    async def patch(self, path: str, body: Any) -> Any:
        if path == f"{DEPLOYMENT}/scale":
            if self.replicas is None:
                raise Refusal(404, "NotFound", "there is none")
            assert body == {"spec": {"replicas": 0}}
            self.replicas = -1  # ends at the next look
            return
        await super().patch(path, body)


def meta(name: str, finalizers: list[str], **labels: str) -> dict[str, Any]:
    return {"name": name, "namespace": "default", "uid": name, "finalizers": finalizers, "labels": labels}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(let_go, "LOOK_S", 0.0)
    monkeypatch.setattr(let_go, "STOP_S", 0.05)


@pytest.mark.parametrize("replicas", [1, None])
def test_a_daemon_is_stopped_when_its_pod_is_gone(replicas: int | None) -> None:
    cluster = Cluster()
    cluster.replicas = replicas
    assert asyncio.run(let_go.stop_daemon(cluster, "swell"))  # type: ignore[arg-type]
    assert not cluster.replicas


def test_a_daemon_that_does_not_end_is_waited_for_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()

    async def ignored(path: str, body: object) -> None:
        """Its kubelet is dead."""

    monkeypatch.setattr(cluster, "patch", ignored)
    assert not asyncio.run(let_go.stop_daemon(cluster, "swell"))  # type: ignore[arg-type]


def test_swells_finalizers_are_taken_off_and_those_of_others_are_left() -> None:
    cluster = Cluster()
    cluster.put(f"{PODS}/ours", {"metadata": meta("ours", [OF_POD, "theirs"], **{CLUSTER: "c"})})
    cluster.put(f"{SWELLJOBS}/job", {"metadata": meta("job", [FINALIZER])})
    assert asyncio.run(let_go.let_go(cluster)) == 2  # type: ignore[arg-type]
    assert cluster.objects[f"{PODS}/ours"]["metadata"]["finalizers"] == ["theirs"]
    assert cluster.objects[f"{SWELLJOBS}/job"]["metadata"]["finalizers"] == []
    assert asyncio.run(let_go.let_go(cluster)) == 0  # type: ignore[arg-type]
