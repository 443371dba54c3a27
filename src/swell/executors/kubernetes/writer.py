"""Creates, annotates and deletes objects of the cluster. Every call is idempotent: it accepts objects that exist
already or are gone. `executor` decides which calls to make.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from swell.core.ids import RunId
from swell.executors.kubernetes.api import Api, Refusal, namespaced
from swell.executors.kubernetes.manifests import Manifest, RunObjects, labels_of
from swell.executors.kubernetes.objects import CLUSTER, FINALIZER, STOP, Pod

KILL_GRACE_S = 1
"""Not 0: that would delete the pod's object while its kubelet may still run it."""


class Writer:
    """`library` returns the object that all runs of a namespace need first."""

    def __init__(self, api: Api, library: Callable[[str], Manifest]) -> None:
        self._api = api
        self._library = library
        self._libraries: set[str] = set()

    async def claim(self, objects: RunObjects) -> Manifest:
        """The run's ConfigMap, made or found."""
        path = namespaced(objects.namespace, "configmaps")
        try:
            made: Manifest = await self._api.create(path, objects.config_map)
        except Refusal as refusal:
            if refusal.reason != "AlreadyExists":
                raise
            made = await self._api.get(f"{path}/{objects.config_map['metadata']['name']}")
        return made

    async def ensure(self, path: str, manifest: Manifest) -> None:
        try:
            await self._api.create(path, manifest)
        except Refusal as refusal:
            if refusal.reason != "AlreadyExists":
                raise

    async def ensure_library(self, namespace: str) -> None:
        if namespace not in self._libraries:
            await self.ensure(namespaced(namespace, "configmaps"), self._library(namespace))
            self._libraries.add(namespace)

    async def annotate(self, kind: str, namespace: str, name: str, values: dict[str, str]) -> None:
        await self._api.patch(namespaced(namespace, kind, name), {"metadata": {"annotations": values}})

    async def fence(self, namespace: str, name: str) -> None:
        """Mark the run as stopped, so that a repeated launch creates no pod."""
        try:
            await self.annotate("configmaps", namespace, name, {STOP: "true"})
        except Refusal as refusal:
            if refusal.code != 404:
                raise

    async def delete(self, namespace: str, name: str, *, kill: bool, uid: str = "") -> None:
        await self._api.delete(namespaced(namespace, "pods", name), KILL_GRACE_S if kill else None, uid)

    async def delete_all(self, pods: Sequence[Pod], *, kill: bool) -> None:
        for pod in pods:
            if kill or pod.deleted_s is None:
                await self.delete(pod.namespace, pod.name, kill=kill, uid=pod.uid)

    async def let_go(self, pod: Pod) -> None:
        """Release a pod whose ends are noted, so that the cluster may delete it."""
        path = namespaced(pod.namespace, "pods", pod.name)
        if pod.deleted_s is None:
            await self._api.delete(path, uid=pod.uid)
        if pod.held:
            kept = [finalizer for finalizer in pod.finalizers if finalizer != FINALIZER]
            try:
                await self._api.patch(path, {"metadata": {"finalizers": kept, "uid": pod.uid}})
            except Refusal as refusal:
                if refusal.code not in (404, 409):
                    raise

    async def delete_claims(self, cluster: str, *, keep: Collection[str]) -> None:
        """Delete the ConfigMaps of this Swell's runs, except those in `keep`."""
        path = namespaced(self._api.namespace, "configmaps")
        found = await self._api.get(path, labelSelector=f"{CLUSTER}={cluster}")
        for item in found["items"]:
            meta = item["metadata"]
            of_run = labels_of(cluster, RunId(0, 0)).keys() <= (meta.get("labels") or {}).keys()
            if of_run and meta["name"] not in keep:
                await self._api.delete(f"{path}/{meta['name']}", uid=meta["uid"])
