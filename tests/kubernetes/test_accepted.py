"""What Swell creates, and what is deployed, passes the API server's own validation and the permissions we ask for."""

from __future__ import annotations

import asyncio
import json
import subprocess

import pytest

from kubernetes.cluster import NAMESPACE, RBAC, ROOT, Cluster
from swell.executors.kubernetes.api import Refusal, connect, namespaced
from swell.executors.kubernetes.settings import KubernetesSettings

pytestmark = pytest.mark.kubernetes
GOLDEN = ROOT / "tests/unit/executors/pods/golden.json"
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
    words = ["kubectl", "--kubeconfig", str(cluster.kubeconfig), "apply", "--dry-run=server", "-f", str(RBAC)]
    told = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert told.returncode == 0, told.stderr
