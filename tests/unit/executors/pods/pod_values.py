"""Objects as an API server sends them, for tests of what they mean."""

from __future__ import annotations

import json
from typing import Any

from swell.executors.kubernetes.manifests import Site
from swell.executors.kubernetes.objects import KubeNode, Pod, node_of, pod_of
from swell.executors.kubernetes.settings import KubernetesSettings

CLUSTER = "c0ffee00c0ffee00"
CREATED_S = 1_800_000_000.0
GPU = "nvidia.com/gpu"
SITE = Site(
    cluster=CLUSTER,
    namespace="default",
    library="lib",
    library_paths={},
    url="http://10.0.0.1:1",
    token="t",
    settings=KubernetesSettings(),
)


def kube_node(name: str = "a", gpus: int = 4, **more: Any) -> KubeNode:
    labels, spec = more.pop("labels", {}), more.pop("spec", {})
    ready = {"type": "Ready", "status": more.pop("ready", "True"), "message": "kubelet stopped posting node status."}
    allocatable = {"cpu": "8", "memory": "16Gi", GPU: str(gpus), **more.pop("allocatable", {})}
    return node_of(
        {
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {"allocatable": allocatable, "conditions": [ready], "nodeInfo": {"bootID": "boot-1"}},
        }
    )


def pod_data(*states: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A pod of run 7.2 with a container per state. `more`: phase, reason, message, meta, spec, conditions."""
    containers = [{"name": f"rank-{rank}", "resources": {"limits": {GPU: "1"}}} for rank in range(len(states))]
    statuses = [
        {"name": f"rank-{rank}", "state": state, "started": "running" in state} for rank, state in enumerate(states)
    ]
    labels = {"swell/cluster": CLUSTER, "swell/job": "7", "swell/attempt": "2", "swell/rank": "0"}
    return {
        "metadata": {
            "name": "swell-c0ffee00-7-2-0",
            "namespace": "default",
            "uid": "u1",
            "labels": more.get("labels", labels),
            "annotations": {"swell/gpus": "1,2"},
            "creationTimestamp": "2027-01-15T08:00:00Z",
            "finalizers": ["swell/record"],
            **more.get("meta", {}),
        },
        "spec": {"nodeName": "a", "containers": containers, **more.get("spec", {})},
        "status": {
            "phase": more.get("phase", "Running"),
            "reason": more.get("reason", ""),
            "message": more.get("message", ""),
            "conditions": more.get("conditions", []),
            "containerStatuses": statuses,
        },
    }


def pod(*states: dict[str, Any], **more: Any) -> Pod:
    return pod_of(pod_data(*states, **more), GPU)


def terminated(code: int, *, reason: str = "Error", word: dict[str, Any] | None = None) -> dict[str, Any]:
    message = json.dumps(word) if word is not None else ""
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def last_word(code: int | None = 0, **more: Any) -> dict[str, Any]:
    return {"code": code, "signal": None, "asked": "", "failed": {}, "epochs": None, **more}
