"""Whether pods reach the daemon, tried by a real pod with the permissions that are deployed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harness import eventually
from kubernetes import image
from kubernetes.cluster import GATEWAY, Cluster
from kubernetes.lab import PATIENT_S, lab
from swell.executors.kubernetes import reach as module
from swell.executors.kubernetes.api import connect
from swell.executors.kubernetes.reach import Reach
from swell.executors.kubernetes.settings import KubernetesSettings
from swell.ports import Check, Verdict

pytestmark = pytest.mark.kubernetes
CLOSED = f"http://{GATEWAY}:9"


def test_a_daemon_that_pods_reach_is_told_so_once(tmp_path: Path, cluster: Cluster) -> None:
    with lab(tmp_path, cluster) as found:
        log = found.home / "daemon.log"
        eventually(
            lambda: "pods reach the daemon at" in log.read_text(encoding="utf-8"), PATIENT_S, what="the pod has tried"
        )
        assert not found.daemon.get("/v1/health")["findings"]


def test_an_address_where_nobody_answers_is_named(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRIES", 1)
    settings = KubernetesSettings(kubeconfig=str(cluster.as_daemon()), probe_image=image.NAME)

    async def play() -> Check | None:
        api = connect(settings)
        try:
            return await Reach(api, "0123456789abcdef", CLOSED, settings)._tried()
        finally:
            await api.close()

    found = asyncio.run(play())
    assert found is not None
    assert found.verdict is Verdict.FAILED, found.words
    assert CLOSED in found.words
    assert "refused" in found.words
