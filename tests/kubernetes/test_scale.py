"""Many pods against a real API server: how far behind the executor is, how often it asks, what it needs.

Nodes are objects without a kubelet, which this test plays: it reports pods as running through the API server, and takes
the time until the executor has told so. `SWELL_KUBERNETES=full`: 1,000 pods of 500 jobs; else 40 pods of 20.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from contract.executor_benches import RealClock
from kubernetes.bench import KubernetesBench
from kubernetes.cluster import Cluster
from swell.core.ids import RunId
from swell.core.job import JobSpec, PodOptions
from swell.core.observations import RunUp
from swell.core.resources import Allocation, Node, Part
from swell.core.state import JobRecord, Run
from swell.executors.kubernetes.api import Api, Refusal, connect
from swell.executors.kubernetes.executor import KubernetesExecutor
from swell.executors.kubernetes.manifests import Manifest, RunObjects, Site, library_of, objects_of
from swell.executors.kubernetes.settings import KubernetesSettings
from swell.ports import Done, Order

pytestmark = [pytest.mark.kubernetes, pytest.mark.alone, pytest.mark.timeout(900)]
FULL = os.environ.get("SWELL_KUBERNETES") == "full"
RUNS = 500 if FULL else 20
FAKE = ("fake-1", "fake-2")
PER_S = 50.0
LAG_S = 2.0
ROUNDS = 3


@pytest.fixture
def fake_nodes(cluster: Cluster) -> Iterator[None]:
    for name in FAKE:
        cluster.kubectl(
            "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        )
    yield
    cluster.kubectl("delete", "nodes", *FAKE)


def order(job: int) -> Order:
    spec = JobSpec(name="j", command=("true",), image="i", kubernetes=PodOptions(), launcher="per-node")  # type: ignore[arg-type]
    run = Run(id=RunId(job, 1), allocation=Allocation(parts=tuple(Part(node=name) for name in FAKE)), planned_s=0.0)
    record = JobRecord(id=job, spec=spec, submitted_s=0.0, run=run)
    return Order(record=record, nodes={name: Node(name=name, executor="kubernetes") for name in FAKE})


class Stage:
    def __init__(self, home: Path, cluster: Cluster) -> None:
        self.id = KubernetesBench(home, cluster).id
        self.settings = KubernetesSettings(kubeconfig=str(cluster.kubeconfig), requests_per_s=PER_S, lease_s=0.0)
        self.api: Api = connect(self.settings)
        self.executor = KubernetesExecutor(
            self.api, RealClock(), self.id, self.make, self.library, settings=self.settings, directory=home / "pods"
        )
        self.up_s: dict[RunId, float] = {}

    def library(self, namespace: str) -> Manifest:
        return library_of({"start.sh": b""}, self.id, namespace)[0]

    def make(self, asked: Order) -> RunObjects:
        site = Site(
            cluster=self.id,
            namespace="default",
            library=self.library("default")["metadata"]["name"],
            library_paths={},
            url="http://127.0.0.1:1",
            token="",
            settings=self.settings,
        )
        objects = objects_of(asked.record, asked.nodes, site)
        for pod, name in zip(objects.pods, FAKE, strict=True):
            pod["spec"]["nodeName"] = name  # no scheduler would place it there
        return objects

    async def observe(self) -> None:
        async for told in self.executor.observe(()):
            if isinstance(told, RunUp):
                self.up_s[told.run] = time.monotonic()


async def report(api: Api, stage: Stage, run: RunId, phase: str, state: Mapping[str, object]) -> None:
    """As both kubelets would."""
    for rank in range(len(FAKE)):
        name = f"swell-{stage.id[:8]}-{run.job}-{run.attempt}-{rank}"
        container = {"name": f"rank-{rank}", "state": state, "started": "running" in state, "ready": True}
        container |= {"restartCount": 0, "image": "i", "imageID": ""}
        status = {"status": {"phase": phase, "podIP": f"10.9.{rank}.1", "containerStatuses": [container]}}
        await api.patch(f"/api/v1/namespaces/default/pods/{name}/status", status)


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


async def until(condition: Callable[[], bool], timeout_s: float) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.05)


async def clean(cluster_id: str, cluster: Cluster) -> None:
    """No kubelet ends these pods: their objects go at once."""
    api = connect(KubernetesSettings(kubeconfig=str(cluster.kubeconfig), requests_per_s=1000.0))
    for kind in ("pods", "configmaps", "secrets"):
        path = f"/api/v1/namespaces/default/{kind}"
        for item in (await api.get(path, labelSelector=f"swell/cluster={cluster_id}"))["items"]:
            name = f"{path}/{item['metadata']['name']}"
            with suppress(Refusal):  # the cluster collects what a ConfigMap owned by itself
                await api.patch(name, {"metadata": {"finalizers": None}})
                await api.delete(name, 0)
    await api.close()


def test_many_pods_are_seen_soon_and_within_the_limit_of_requests(
    tmp_path: Path, cluster: Cluster, fake_nodes: None
) -> None:
    async def play() -> None:
        stage = Stage(tmp_path, cluster)
        kubelets = connect(KubernetesSettings(kubeconfig=str(cluster.kubeconfig), requests_per_s=1000.0))
        task = asyncio.create_task(stage.observe())
        runs = [RunId(job, 1) for job in range(1, RUNS + 1)]
        try:
            began_s = time.monotonic()
            for job in range(1, RUNS + 1):
                assert await stage.executor.launch(order(job)) == Done()
            launched_s = time.monotonic() - began_s
            asked_s: dict[RunId, float] = {}
            requests, before_s = stage.api.requests, time.monotonic()
            for run in runs:
                await report(kubelets, stage, run, "Running", {"running": {"startedAt": "2026-11-18T00:00:00Z"}})
                asked_s[run] = time.monotonic()
                await asyncio.sleep(launched_s / RUNS)  # pods start as quickly as they could be created
            await until(lambda: len(stage.up_s) == RUNS, 120.0)
            rate = (stage.api.requests - requests) / (time.monotonic() - before_s)
            lags_s = sorted(stage.up_s[run] - asked_s[run] for run in runs)
            small_mib = resident_mib()
            for second in range(ROUNDS):  # as many events again and again, which change nothing that matters
                started = {"running": {"startedAt": f"2026-11-18T00:00:{second:02d}Z"}}
                for run in runs:
                    await report(kubelets, stage, run, "Running", started)
            flat_mib = resident_mib()
            p99_s = lags_s[min(len(lags_s) - 1, int(0.99 * len(lags_s)))]
            median_s, most_s = lags_s[len(lags_s) // 2], lags_s[-1]
            print(
                f"\n{2 * RUNS} pods of {RUNS} runs: launched in {launched_s:.0f} s; from the kubelet's report to RunUp "
                f"{median_s:.3f} s (median), {p99_s:.3f} s (p99), {most_s:.3f} s (most); {rate:.1f} requests/s "
                f"of {PER_S:.0f}; {small_mib:.0f} MiB with all pods, {flat_mib:.0f} MiB {ROUNDS} rounds later"
            )
            assert p99_s < LAG_S or not FULL, "how soon is measured on a machine that does nothing else"
            assert rate <= PER_S * 1.05 + 2 * PER_S / (time.monotonic() - before_s)
            assert flat_mib < small_mib + 20.0
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await kubelets.close()
            await clean(stage.id, cluster)

    asyncio.run(play())
