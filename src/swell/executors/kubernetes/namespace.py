"""Watches the limits of the daemon's namespace (`rules`). Those that may not be read are left out, and logged once;
then the cluster refuses a pod beyond a quota, and it is retried later."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from swell.core.resources import Cap, Node
from swell.executors.kubernetes.api import Api, Refusal, namespaced
from swell.executors.kubernetes.objects import Json, Pod
from swell.executors.kubernetes.rules import ResourceQuota, caps_from, kueue_cap, managed_by, quota_of
from swell.executors.kubernetes.watch import Reflector
from swell.executors.transport import Unreachable
from swell.ports import Check, Verdict

log = logging.getLogger(__name__)

KUEUE = "kueue.x-k8s.io"
LOOK_S = 60.0
"""Interval of the checks for Kueue and for a missing permission."""
FIRST_S, RETRY_S = 5.0, 1.0
_ROLE = "add it to the Role of the daemon, as in deploy/kubernetes/rbac.yaml"


class NamespaceRules:
    """`cluster`: the id that distinguishes Swell's pods from others. `findings`: what could not be read, by name."""

    def __init__(self, api: Api, cluster: str, gpu_resource: str) -> None:
        self._api = api
        self._cluster = cluster
        self._gpu_resource = gpu_resource
        self._path = namespaced(api.namespace, "resourcequotas")
        self._quotas = Reflector(api, self._path, quota_of, self._quota_changed)
        self._kueue = ""
        self._news = False
        self._looked = (asyncio.Event(), asyncio.Event())  # at quotas, for Kueue
        self.findings: dict[str, Check] = {}

    def news(self) -> bool:
        """Whether something has changed since this was last asked."""
        news, self._news = self._news, False
        return news

    async def known(self) -> None:
        """Returns when the rules have been read, or it is clear that they cannot be read now."""
        try:
            async with asyncio.timeout(FIRST_S):
                for looked in self._looked:
                    await looked.wait()
        except TimeoutError:
            log.warning("what the namespace %s allows is not known yet; it is read on", self._api.namespace)

    def caps(self, pods: Iterable[Pod], nodes: Sequence[Node]) -> tuple[Cap, ...]:
        namespace = self._api.namespace
        others = [pod for pod in pods if pod.namespace == namespace and pod.cluster != self._cluster]
        quotas: Iterable[ResourceQuota] = self._quotas.items.values()
        caps = caps_from(quotas, others, nodes, gpu_resource=self._gpu_resource, namespace=namespace)
        return (kueue_cap(namespace, self._kueue), *caps) if self._kueue else caps

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_quotas())
            tasks.create_task(self._keep_looking_for_kueue())

    def _quota_changed(self, _quota: ResourceQuota, _gone: bool) -> None:
        self._news = True

    async def _keep_quotas(self) -> None:
        while await self._read("resourcequotas", "ResourceQuotas", self._path, limit=1) is None:
            self._looked[0].set()
            await asyncio.sleep(LOOK_S)
        watching = asyncio.create_task(self._quotas.run())
        try:
            await self._quotas.synced.wait()
            self._looked[0].set()
            await watching
        finally:
            watching.cancel()

    async def _read(self, name: str, what: str, path: str, **query: int) -> Json | None:
        """The objects, once the API server answers. None: it refuses; a missing permission becomes a finding."""
        while True:
            try:
                found: Json = await self._api.get(path, **query)
            except Refusal as refusal:
                if refusal.code == 403:
                    self._cannot(name, f"the daemon may not read {what} of namespace {self._api.namespace}")
                return None
            except Unreachable:
                await asyncio.sleep(RETRY_S)
                continue
            self.findings.pop(name, None)
            return found

    def _cannot(self, name: str, words: str) -> None:
        if name not in self.findings:
            log.warning("%s, so it does not keep to them: the cluster refuses such pods; %s", words, _ROLE)
        self.findings[name] = Check(name="kubernetes", verdict=Verdict.NOTE, words=words, fix=_ROLE)

    async def _keep_looking_for_kueue(self) -> None:
        while True:
            try:
                found = managed_by(await self._labels(), await self._queues())
            except OSError as error:
                log.debug("looking for Kueue: %s", error)
            else:
                self._news |= found != self._kueue
                self._kueue = found
                self._looked[1].set()
            await asyncio.sleep(LOOK_S)

    async def _labels(self) -> dict[str, str]:
        found = await self._read("namespace", "the labels", f"/api/v1/namespaces/{self._api.namespace}")
        return found["metadata"].get("labels") or {} if found else {}

    async def _queues(self) -> list[str]:
        try:
            group = await self._api.get(f"/apis/{KUEUE}")
        except Refusal:  # Kueue is not installed
            return []
        version = group["preferredVersion"]["groupVersion"]
        path = namespaced(self._api.namespace, "localqueues", group=version)
        found = await self._read("localqueues", "LocalQueues", path)
        return [item["metadata"]["name"] for item in found["items"]] if found else []
