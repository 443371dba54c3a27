"""ResourceQuotas and Kueue of the daemon's namespace, as caps that the executor reports with its nodes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from swell.core.resources import Capped, Gpu, Node
from swell.executors.kubernetes.namespace import NamespaceRules
from swell.executors.kubernetes.rules import caps_from, kueue_cap, managed_by, quota_of
from unit.executors.pods.fake_cluster import FakeCluster
from unit.executors.pods.pod_values import CLUSTER, GPU, pod

QUOTA = "/api/v1/namespaces/default/resourcequotas/q"
NODE = Node(name="a", cpus=8, memory_mib=1000)
RUNNING: dict[str, Any] = {"running": {}}


def quota(hard: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard, **spec}}


def most(hard: dict[str, str], *others: Any, node: Node = NODE, **spec: Any) -> dict[Capped, int]:
    found = caps_from([quota_of(quota(hard, **spec))], others, [node], gpu_resource=GPU, namespace="default")
    return {cap.what: cap.most for cap in found}


def test_each_kind_is_read_by_each_of_its_names() -> None:
    assert most({f"requests.{GPU}": "5"}) == {Capped.GPUS: 5}
    assert most({"pods": "3", "count/pods": "2"}) == {Capped.PODS: 2}, "the tighter one holds"
    assert most({"requests.cpu": "2500m"}) == {Capped.CPUS: 2}
    assert most({"limits.memory": "1Gi", "cpu": "4"}) == {Capped.CPUS: 4, Capped.MEMORY: 1024}
    assert most({"persistentvolumeclaims": "1", "requests.amd.com/gpu": "1"}) == {}


def test_what_others_use_is_taken_off_and_named() -> None:
    other = pod(RUNNING, RUNNING, labels={})
    over = pod(RUNNING, labels={}, phase="Succeeded")
    data = quota({f"requests.{GPU}": "3", "pods": "1"})
    caps = caps_from([quota_of(data)], [other, over], [NODE], gpu_resource=GPU, namespace="default")
    assert [(cap.what, cap.most) for cap in caps] == [(Capped.GPUS, 1), (Capped.PODS, 0)]
    assert caps[0].why == (
        "ResourceQuota q allows pods of namespace default 3 GPUs in all (requests.nvidia.com/gpu), of which pods of "
        "others use 2"
    )


def test_a_quota_of_some_pods_only_is_left_out() -> None:
    assert most({"pods": "1"}, scopes=["BestEffort"]) == {}
    assert most({"pods": "1"}, scopeSelector={"matchExpressions": []}) == {}
    assert most({"pods": "1"}, scopes=["NotTerminating"]) == {Capped.PODS: 1}


def test_cpus_are_counted_as_swell_accounts_them() -> None:
    """A node with 2 CPUs and 4 GPUs is accounted as 4: each asks the cluster for half a real one."""
    small = Node(name="a", cpus=2, gpus=tuple(Gpu(index=index) for index in range(4)))
    assert most({"requests.cpu": "1"}, node=small) == {Capped.CPUS: 2}


def test_what_shows_that_kueue_manages_a_namespace() -> None:
    assert managed_by({"kueue.x-k8s.io/managed-namespace": "true"}, []).endswith("kueue.x-k8s.io/managed-namespace")
    assert managed_by({}, ["team-a"]) == "its LocalQueue team-a"
    assert not managed_by({"kueue-managed": "false"}, [])
    cap = kueue_cap("default", "its LocalQueue team-a")
    assert cap.refused
    assert "namespace without Kueue" in cap.why


async def watched(cluster: FakeCluster) -> tuple[NamespaceRules, asyncio.Task[None]]:
    rules = NamespaceRules(cluster, CLUSTER, GPU)  # type: ignore[arg-type]
    task = asyncio.create_task(rules.run())
    await rules.known()
    return rules, task


def test_quotas_are_followed_as_they_change() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        cluster.put(QUOTA, quota({"pods": "3"}))
        rules, task = await watched(cluster)
        assert rules.news()
        assert not rules.news(), "asked once, it is no news any more"
        assert [cap.most for cap in rules.caps([], [NODE])] == [3]
        ours, other = pod(RUNNING), pod(RUNNING, labels={})
        elsewhere = pod(RUNNING, labels={}, meta={"namespace": "kube-system"})
        assert [cap.most for cap in rules.caps([ours, other, elsewhere], [NODE])] == [2]
        cluster.put(QUOTA, quota({"pods": "7"}))
        async with asyncio.timeout(5.0):
            while not rules.news():
                await asyncio.sleep(0)
        assert [cap.most for cap in rules.caps([], [NODE])] == [7]
        task.cancel()

    asyncio.run(scenario())


def test_what_may_not_be_read_is_left_out_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        cluster.forbids = ("/api/v1/namespaces/default/resourcequotas", "/api/v1/namespaces/default")
        rules, task = await watched(cluster)
        assert rules.caps([], [NODE]) == ()
        assert sorted(rules.findings) == ["namespace", "resourcequotas"]
        assert "rbac.yaml" in rules.findings["resourcequotas"].fix
        assert sum("may not read ResourceQuotas" in record.message for record in caplog.records) == 1
        task.cancel()

    asyncio.run(scenario())


def test_a_namespace_of_kueue_takes_no_pods() -> None:
    async def scenario() -> None:
        cluster = FakeCluster()
        cluster.put(
            "/apis/kueue.x-k8s.io", {"metadata": {}, "preferredVersion": {"groupVersion": "kueue.x-k8s.io/v1beta2"}}
        )
        queue = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues/team-a"
        cluster.put(queue, {"metadata": {"name": "team-a", "namespace": "default"}})
        rules, task = await watched(cluster)
        (cap,) = rules.caps([], [NODE])
        assert cap.refused
        assert "LocalQueue team-a" in cap.why
        task.cancel()

    asyncio.run(scenario())
