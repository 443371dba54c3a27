"""What Swell creates, and what is deployed, passes the API server's own validation and the permissions we ask for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from kubernetes.cluster import CRD, NAMESPACE, RBAC, ROOT, Cluster
from swell.executors.kubernetes.api import Refusal, connect, namespaced
from swell.executors.kubernetes.settings import KubernetesSettings
from swell.swelljobs.let_go import let_go
from unit.deploy.helm import render
from unit.deploy.test_chart import CHART, FULL

pytestmark = pytest.mark.kubernetes
GOLDEN = ROOT / "tests/unit/executors/pods/golden.json"
PAUSE = "docker.io/local/pause:1"
KINDS = {"ConfigMap": "configmaps", "Secret": "secrets", "Pod": "pods"}


def test_a_whole_run_is_valid_and_may_be_created_by_the_daemons_account(cluster: Cluster) -> None:
    async def play() -> None:
        api = connect(KubernetesSettings(kubeconfig=str(cluster.as_daemon())))
        try:
            for item in json.loads(GOLDEN.read_text(encoding="utf-8")):
                item["metadata"]["namespace"] = NAMESPACE
                if item["kind"] == "Pod":  # named by a job; whether they exist is checked at creation
                    del item["spec"]["priorityClassName"], item["spec"]["serviceAccountName"]
                await api.create(namespaced(NAMESPACE, KINDS[item["kind"]]), item, dryRun="All")
        finally:
            await api.close()

    asyncio.run(play())


@pytest.mark.parametrize("path", ["/api/v1/secrets", namespaced("default", "configmaps"), "/api/v1/namespaces"])
def test_the_daemons_account_may_not_look_around(cluster: Cluster, path: str) -> None:
    async def play() -> None:
        api = connect(KubernetesSettings(kubeconfig=str(cluster.as_daemon())))
        try:
            with pytest.raises(Refusal, match="forbidden"):
                await api.get(path)
        finally:
            await api.close()

    asyncio.run(play())


def test_what_is_deployed_is_valid(cluster: Cluster) -> None:
    cluster.apply(RBAC)  # the namespace, without which the server cannot check the rest
    cluster.kubectl("apply", "--dry-run=server", "-f", str(ROOT / "deploy/kubernetes/swell.yaml"))


@pytest.mark.parametrize("values", [{}, {**FULL, "serviceMonitor": False}])
def test_what_the_chart_renders_is_valid(cluster: Cluster, values: Mapping[str, Any]) -> None:
    """By the stand-in for `helm template`; the ServiceMonitor needs a resource that this cluster does not have."""
    items = render(CHART, values, name="swell", namespace="default")
    cluster.kubectl(
        "apply", "--dry-run=server", "-f", "-", stdin=json.dumps({"kind": "List", "apiVersion": "v1", "items": items})
    )


@pytest.mark.alone
def test_the_hook_lets_go_of_finalizers_with_the_daemons_permissions(cluster: Cluster) -> None:
    api_of = partial(connect, KubernetesSettings(kubeconfig=str(cluster.as_daemon())))
    cluster.apply(CRD)
    held = {"name": "held", "namespace": NAMESPACE, "labels": {"swell/cluster": "c"}}
    pod = {"containers": [{"name": "rank-0", "image": PAUSE}], "restartPolicy": "Never", "nodeName": "nowhere"}
    items = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {**held, "finalizers": ["swell/record"]}, "spec": pod},
        {
            "apiVersion": "swell.dev/v1",
            "kind": "SwellJob",
            "metadata": {**held, "finalizers": ["swell.dev/job", "somebody.else/own"]},
            "spec": {},
        },
    ]
    for item in items:
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(item))

    async def play() -> int:
        api = api_of()
        try:
            return await let_go(api)
        finally:
            await api.close()

    try:
        assert asyncio.run(play()) == 2
        assert finalizers(cluster, "pod") == ""
        assert finalizers(cluster, "swelljob") == '["somebody.else/own"]'
        assert asyncio.run(play()) == 0
    finally:
        for kind in ("pod", "swelljob"):
            cluster.kubectl(
                "-n", NAMESPACE, "patch", kind, "held", "--type=merge", "-p", '{"metadata":{"finalizers":null}}'
            )
            cluster.kubectl("-n", NAMESPACE, "delete", kind, "held", "--grace-period=0", "--force")


def finalizers(cluster: Cluster, kind: str) -> str:
    return cluster.kubectl("-n", NAMESPACE, "get", kind, "held", "-o", "jsonpath={.metadata.finalizers}")
