"""Before Swell is removed from a cluster: take its finalizers off, or nobody could delete what it held.

    python -m swell.swelljobs.let_go NAMESPACE DEPLOYMENT

Run by the chart's pre-delete hook. The daemon is stopped first: it would go on to launch runs, whose pods have a
finalizer again. Pods go on running; those that have a lease end by it. Touches nothing else.
"""

from __future__ import annotations

import asyncio
import sys

from swell.executors.kubernetes.api import Api, Refusal, connect, namespaced
from swell.executors.kubernetes.objects import CLUSTER
from swell.executors.kubernetes.objects import FINALIZER as OF_POD
from swell.executors.kubernetes.settings import KubernetesSettings
from swell.swelljobs.resource import FINALIZER, GROUP, PLURAL, VERSION

DAEMON = "app.kubernetes.io/name=swell,app.kubernetes.io/instance"
"""Labels of the daemon's pods; the second has the deployment's name."""
STOP_S, LOOK_S = 120.0, 1.0


async def stop_daemon(api: Api, deployment: str) -> bool:
    """Scales it to nothing. Whether its pods are gone within STOP_S; a daemon that is not there is stopped."""
    path = namespaced(api.namespace, "deployments", deployment, group="apps/v1")
    try:
        await api.patch(f"{path}/scale", {"spec": {"replicas": 0}})
    except Refusal as refusal:
        if refusal.code != 404:
            raise
    give_up_s = asyncio.get_running_loop().time() + STOP_S
    while asyncio.get_running_loop().time() < give_up_s:
        pods = await api.get("/api/v1/pods", labelSelector=f"{DAEMON}={deployment}")
        if not any(item["metadata"]["namespace"] == api.namespace for item in pods["items"]):
            return True
        await asyncio.sleep(LOOK_S)
    return False


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


async def _main(namespace: str, deployment: str) -> None:
    api = connect(KubernetesSettings(namespace=namespace))
    try:
        if not await stop_daemon(api, deployment):
            print(f"the daemon {deployment} has not stopped within {STOP_S:.0f} s; it may hold pods again")
        print(f"let go of {await let_go(api)} objects in {namespace}")
    finally:
        await api.close()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
