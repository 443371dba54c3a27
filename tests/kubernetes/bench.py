"""The executor's conformance suite, played by pods of a real cluster."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from pathlib import Path

from contract.executor_benches import RealClock, as_is
from kubernetes import image
from kubernetes.cluster import Cluster
from swell.core.ids import RunId
from swell.core.resources import Allocation, Node
from swell.executors.kubernetes.api import Api, connect
from swell.executors.kubernetes.executor import KubernetesExecutor
from swell.executors.kubernetes.manifests import Manifest, RunObjects, Site, library_of, objects_for
from swell.executors.kubernetes.preparation import pod_files
from swell.executors.kubernetes.settings import KubernetesSettings
from swell.ports import Executor, Order

NODE = "node-1"


class KubernetesBench:
    def __init__(self, home: Path, cluster: Cluster) -> None:
        self.directory = home / "pods"
        self.cluster = cluster
        self.id = uuid.uuid4().hex
        self.settings = KubernetesSettings(kubeconfig=str(cluster.kubeconfig), requests_per_s=50.0, lease_s=0.0)
        self.apis: list[Api] = []

    def executor(self) -> Executor:
        api = connect(self.settings)
        self.apis.append(api)
        return KubernetesExecutor(
            api, RealClock(), self.id, self.make, self.library, settings=self.settings, directory=self.directory
        )

    def library(self, namespace: str) -> Manifest:
        return library_of(pod_files({}), self.id, namespace)[0]

    def make(self, order: Order) -> RunObjects:
        """Of an order that is prepared already, on a node that there is."""
        launch = as_is(order)
        launch = replace(launch, workers=tuple(replace(worker, node=NODE) for worker in launch.workers))
        record = order.record
        assert record.run is not None
        parts = tuple(replace(part, node=NODE) for part in record.run.allocation.parts)
        run = replace(record.run, allocation=Allocation(parts=parts))
        spec = replace(record.spec, image=image.NAME, grace_s=launch.grace_s)
        manifest, paths = library_of(pod_files({}), self.id, "default")
        site = Site(
            cluster=self.id,
            namespace="default",
            library=manifest["metadata"]["name"],
            library_paths=paths,
            url="http://127.0.0.1:1",
            token="",
            settings=self.settings,
        )
        return objects_for(replace(record, run=run, spec=spec), {NODE: Node(name=NODE)}, launch, site)

    async def pass_time(self) -> None:
        await asyncio.sleep(0.1)

    def starts(self, run: RunId) -> int:
        logs = [log.read_text() for log in (self.directory / str(run)).glob("*/log")]
        return max((log.count("here") + log.count("one") for log in logs), default=0)
