"""The whole conformance suite of executors, on pods."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract import executor_benches
from contract.test_executor import *  # noqa: F403 - every promise of the suite holds here
from kubernetes.bench import KubernetesBench
from kubernetes.cluster import Cluster

pytestmark = pytest.mark.kubernetes


@pytest.fixture(name="bench")
def pods(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesBench]:
    monkeypatch.setattr(executor_benches, "LIMIT_S", 90.0)
    made = KubernetesBench(tmp_path, cluster)
    yield made
    label = f"swell/cluster={made.id}"
    cluster.kubectl("delete", "pods,configmaps,secrets", "-l", label, "--wait=false", "--grace-period=1")
    names = cluster.kubectl("get", "pods", "-l", label, "-o", "name").split()
    for name in names:
        cluster.kubectl("patch", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
