"""Nodes of a cluster as Swell's nodes. Pure.

The device plugin chooses devices, so GPUs here are anonymous: slots `0 … n-1`; a pod of Swell notes those that it was
planned on. The use of other pods is subtracted from the free slots, from the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType

from swell.core.pods import PODS
from swell.core.resources import Gpu, Node
from swell.executors.kubernetes.objects import KubeNode, Pod, Taint, quantity
from swell.executors.kubernetes.settings import KubernetesSettings

TYPE_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator")
MEMORY_LABEL = "nvidia.com/gpu.memory"  # MiB per GPU, by NVIDIA's feature discovery
RACK_LABELS = ("topology.kubernetes.io/rack", "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_OF_KUBERNETES = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/unschedulable")
"""Taints that repeat a node's readiness and cordon."""
_KEEPS_OUT = ("NoSchedule", "NoExecute")


def nodes_of(
    nodes: Iterable[KubeNode],
    pods: Iterable[Pod],
    cluster: str,
    settings: KubernetesSettings,
    held: Mapping[str, AbstractSet[int]] = MappingProxyType({}),
) -> list[Node]:
    """The nodes in order of name. `cluster`: the id that distinguishes this Swell's pods from those of another.
    `held`: slots by node of runs whose pods may not exist yet."""
    on: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node and pod.phase not in ("Succeeded", "Failed"):
            on.setdefault(pod.node, []).append(pod)
    return [
        node_seen(node, on.get(node.name, ()), cluster, settings, held.get(node.name, frozenset()))
        for node in sorted(nodes, key=lambda node: node.name)
    ]


def node_seen(
    node: KubeNode,
    pods: Sequence[Pod],
    cluster: str,
    settings: KubernetesSettings,
    held: AbstractSet[int] = frozenset(),
) -> Node:
    """`pods`: those on this node that have not ended."""
    ours = [pod for pod in pods if pod.cluster == cluster]
    others = [pod for pod in pods if pod.cluster != cluster]
    cpus = quantity(node.resources.get("cpu", 0)) - sum(pod.uses.cpus for pod in others)
    memory_mib = quantity(node.resources.get("memory", 0)) / 2**20 - sum(pod.uses.memory_mib for pod in others)
    return Node(
        name=node.name,
        gpus=_gpus(
            node, frozenset(held).union(*(pod.slots for pod in ours)), sum(pod.uses.gpus for pod in others), settings
        ),
        cpus=max(0, math.floor(cpus + 1e-9)),
        memory_mib=max(0, int(memory_mib)),
        labels=dict(sorted(node.labels.items())),
        rack=next((node.labels[label] for label in RACK_LABELS if label in node.labels), ""),
        address="",
        executor=PODS,
        realm=PODS,
        closed=closed(node, settings),
    )


def _gpus(node: KubeNode, held: AbstractSet[int], taken: int, settings: KubernetesSettings) -> tuple[Gpu, ...]:
    count = int(quantity(node.resources.get(settings.gpu_resource, 0)))
    free = [slot for slot in range(count) if slot not in held]
    others = set(free[max(0, len(free) - taken) :])
    gpu_type = next((node.labels[label] for label in TYPE_LABELS if node.labels.get(label)), "gpu")
    memory_mib = int(quantity(node.labels.get(MEMORY_LABEL, 0)))
    return tuple(Gpu(index=slot, type=gpu_type, memory_mib=memory_mib, others=slot in others) for slot in range(count))


def closed(node: KubeNode, settings: KubernetesSettings) -> str:
    """Why Kubernetes would start no new pod of Swell there; empty if it would."""
    if not node.ready:
        return f"not ready in Kubernetes: {node.why_not_ready}"
    if node.cordoned:
        return f"cordoned in Kubernetes; `kubectl uncordon {node.name}` opens it"
    kept_out = [taint for taint in keeping_out(node) if taint.key not in tolerated(settings)]
    if kept_out:
        keys = ", ".join(sorted({taint.key for taint in kept_out}))
        return (
            f"tainted {keys} in Kubernetes; `tolerate: [{keys}]` under `kubernetes:` in config.yaml lets jobs run there"
        )
    return ""


def keeping_out(node: KubeNode) -> list[Taint]:
    return [taint for taint in node.taints if taint.effect in _KEEPS_OUT and taint.key not in _OF_KUBERNETES]


def tolerated(settings: KubernetesSettings) -> tuple[str, ...]:
    """Keys of taints that Swell's pods tolerate: GPU nodes are commonly tainted with the name of their resource."""
    return (settings.gpu_resource, *settings.tolerate)
