"""Limits of a namespace: its ResourceQuotas, and whether Kueue admits pods there. Pure.

Others' use is counted from their pods, not read from a quota's status, which is written some time after each pod and
would sometimes count Swell's pods as pods of others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swell.core.capacity import cpus_of
from swell.core.caps import UNITS
from swell.core.resources import Cap, Capped, Node
from swell.executors.kubernetes.objects import Pod, Uses, quantity

KUEUE_LABELS = (
    "kueue.x-k8s.io/managed-namespace",
    "kueue-managed",
    "managed-by-kueue",
    "kueue.openshift.io/managed",
)
"""Of namespaces, as Kueue's documentation and its distributions name them."""
_KEYS: Mapping[Capped, tuple[str, ...]] = {
    Capped.PODS: ("pods", "count/pods"),
    Capped.CPUS: ("requests.cpu", "cpu"),
    Capped.MEMORY: ("requests.memory", "memory", "limits.memory"),  # a worker's memory is request and limit
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceQuota:
    name: str
    hard: Mapping[str, str]
    scoped: bool = False  # it counts some pods only


def quota_of(data: Mapping[str, Any]) -> ResourceQuota:
    spec, status = data.get("spec") or {}, data.get("status") or {}
    scopes = [scope for scope in spec.get("scopes") or () if scope != "NotTerminating"]  # pods of ours have no deadline
    return ResourceQuota(
        name=data["metadata"]["name"],
        hard=dict(status.get("hard") or spec.get("hard") or {}),
        scoped=bool(scopes or spec.get("scopeSelector")),
    )


def caps_from(
    quotas: Iterable[ResourceQuota], pods: Iterable[Pod], nodes: Sequence[Node], *, gpu_resource: str, namespace: str
) -> tuple[Cap, ...]:
    """The tightest cap of each kind. `pods`: those of others in the namespace. A quota that counts only some pods is
    left out; a pod that it refuses is retried later."""
    found: dict[Capped, Cap] = {}
    others = [pod for pod in pods if pod.phase not in ("Succeeded", "Failed")]
    used = _used([pod.uses for pod in others])
    for quota in quotas:
        for what in Capped if not quota.scoped else ():
            keys = (f"requests.{gpu_resource}",) if what is Capped.GPUS else _KEYS[what]
            for key in [key for key in keys if key in quota.hard]:
                cap = _cap(quota, key, what, used[what], nodes, namespace)
                if what not in found or cap.most < found[what].most:
                    found[what] = cap
    return tuple(found.values())


def _used(uses: Sequence[Uses]) -> dict[Capped, float]:
    return {
        Capped.GPUS: sum(one.gpus for one in uses),
        Capped.PODS: len(uses),
        Capped.CPUS: sum(one.cpus for one in uses),
        Capped.MEMORY: sum(one.memory_mib for one in uses),
    }


def _cap(quota: ResourceQuota, key: str, what: Capped, used: float, nodes: Sequence[Node], namespace: str) -> Cap:
    hard = quantity(quota.hard[key]) / (2**20 if what is Capped.MEMORY else 1)
    most = (hard - used) * (_cpus_per_real_cpu(nodes) if what is Capped.CPUS else 1.0)
    others = f", of which pods of others use {used:g}" if used else ""
    why = (
        f"ResourceQuota {quota.name} allows pods of namespace {namespace} {hard:g} {UNITS[what]} in all ({key}){others}"
    )
    return Cap(namespace=namespace, what=what, most=max(0, math.floor(most + 1e-6)), why=why)


def _cpus_per_real_cpu(nodes: Sequence[Node]) -> float:
    """Swell accounts one CPU per GPU where a node has fewer, and asks the cluster for real ones (`cpus_of`)."""
    return min((cpus_of(node) / node.cpus for node in nodes if node.cpus), default=1.0)


def managed_by(labels: Mapping[str, str], queues: Sequence[str]) -> str:
    """The evidence that Kueue admits the pods of a namespace; empty: there is none. `queues`: its LocalQueues."""
    label = next((key for key in KUEUE_LABELS if labels.get(key) == "true"), "")
    if label:
        return f"its label {label}"
    return f"its LocalQueue {queues[0]}" if queues else ""


def kueue_cap(namespace: str, shown_by: str) -> Cap:
    why = (
        f"Kueue manages the namespace {namespace} ({shown_by} shows it) and would hold back Swell's pods, or count "
        "them against its queues: both cannot decide. Let Swell's pods run in a namespace without Kueue: `namespace` "
        "under `kubernetes:` in config.yaml, or in the job file"
    )
    return Cap(namespace=namespace, what=Capped.PODS, most=0, why=why, refused=True)
