"""Before Swell is removed from a cluster: take its finalizers off, or nobody could delete what it held.

    python -m swell.swelljobs.let_go NAMESPACE

Run by the chart's pre-delete hook. Pods go on running; those that have a lease end by it. Touches nothing else.
"""

from __future__ import annotations

import asyncio
import sys

from swell.executors.kubernetes.api import Api, Refusal, connect, namespaced
from swell.executors.kubernetes.objects import CLUSTER
from swell.executors.kubernetes.objects import FINALIZER as OF_POD
from swell.executors.kubernetes.settings import KubernetesSettings
from swell.swelljobs.resource import FINALIZER, GROUP, PLURAL, VERSION


async def let_go(api: Api) -> int:
    """How many objects had one."""
    pods = await api.get("/api/v1/pods", labelSelector=CLUSTER)
    here = [item for item in pods["items"] if item["metadata"]["namespace"] == api.namespace]
    count = [await _without(api, namespaced(api.namespace, "pods"), item, OF_POD) for item in here]
    path = namespaced(api.namespace, PLURAL, group=f"{GROUP}/{VERSION}")
    try:
        jobs = await api.get(path)
    except Refusal:  # the custom resource is not there
        jobs = {"items": []}
    count += [await _without(api, path, item, FINALIZER) for item in jobs["items"]]
    return sum(count)


async def _without(api: Api, path: str, item: dict[str, dict[str, list[str]]], name: str) -> bool:
    meta = item["metadata"]
    held = meta.get("finalizers") or []
    if name not in held:
        return False
    try:
        rest = [finalizer for finalizer in held if finalizer != name]
        await api.patch(f"{path}/{meta['name']}", {"metadata": {"finalizers": rest, "uid": meta["uid"]}})
    except Refusal as refusal:
        if refusal.code not in (404, 409):
            raise
    return True


async def _main(namespace: str) -> None:
    api = connect(KubernetesSettings(namespace=namespace))
    try:
        print(f"let go of {await let_go(api)} objects in {namespace}")
    finally:
        await api.close()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
