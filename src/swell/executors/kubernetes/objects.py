"""Objects of the API server, reduced to the fields that Swell reads. Pure; unknown or missing fields are harmless.

Swell marks its own objects with labels (`swell/cluster`, `swell/job`, `swell/attempt`, `swell/rank`) and touches no
others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from swell.core.ids import RunId

Json = Mapping[str, Any]

CLUSTER, JOB, ATTEMPT, RANK = "swell/cluster", "swell/job", "swell/attempt", "swell/rank"
FINALIZER = "swell/record"
"""Keeps a pod's object until its exit code and log are stored: they would be lost if the pod were deleted earlier."""
ADDRESSES, GPUS, STOP, LAUNCHED = "swell/addresses", "swell/gpus", "swell/stop", "swell/launched"
"""Annotations. Of a pod: the addresses of its run's pods; the slots that it holds of its node. Of a run's ConfigMap:
the run was asked to stop; all its pods were created."""
HOST, HOSTS = "swell/host", "swell/hosts"
"""Annotations of an MPIJob's pods. Of a worker: the node that it was made for. Of the launcher: the workers that its
host discovery lists."""
REPLICA_INDEX = "training.kubeflow.org/replica-index"  # a label, by the operator
WORKER = "worker"
"""The container of an MPIJob's workers. Worker i is rank i + 1 of its run, and the launcher rank 0."""

_QUANTITY = re.compile(r"([+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)([numkMGTPE]|[KMGTPE]i)?")
_SUFFIX: Mapping[str, float] = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
    "Ei": 2.0**60,
}
_RANK_NAME = re.compile(r"rank-([0-9]+)")
_GATED = (
    "a scheduling gate holds it back, which something else in the cluster lifts (Kueue, if it manages the namespace); "
    "let Swell's pods run in a namespace without it: `namespace` under `kubernetes:` in config.yaml"
)


def quantity(text: object) -> float:
    """`500m`, `4`, `16Gi`, `1e3` as a number; 0 if the text is not a quantity."""
    match = _QUANTITY.fullmatch(str(text))
    return float(match[1]) * _SUFFIX[match[2] or ""] if match else 0.0


def time_s(text: str | None) -> float | None:
    """`2026-11-17T05:00:00Z` in seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp() if text else None


class _Amounts(NamedTuple):
    gpus: float
    cpus: float
    memory_mib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """What a pod requests of its node."""

    gpus: int = 0
    cpus: float = 0.0
    memory_mib: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One worker. `state` is waiting, running or terminated; empty before the first report of its kubelet."""

    rank: int
    name: str = ""
    state: str = ""
    started: bool = False  # its program runs, or ran
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    finished_s: float | None = None  # in whole seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    namespace: str
    name: str
    uid: str = ""
    cluster: str = ""
    run: RunId | None = None  # set for pods of Swell only
    rank: int = 0  # of its node within the run; of its worker, in an MPIJob
    host: str = ""  # the node that a worker of an MPIJob was made for
    hosts: str = ""  # the workers that the launcher of an MPIJob discovers
    slots: tuple[int, ...] = ()
    node: str = ""
    phase: str = ""
    reason: str = ""
    message: str = ""
    address: str = ""
    addresses: str = ""  # those of its run's pods, as they were announced to it
    created_s: float | None = None
    deleted_s: float | None = None  # if it is being deleted: by when it must have ended
    let_go: bool = False  # it is to end, and its kubelet has confirmed that nothing of it is left (or nobody had it)
    finalizers: tuple[str, ...] = ()
    unschedulable: str = ""
    disrupted: str = ""  # why Kubernetes itself ends it (preemption, taint, eviction); from version 1.26 on
    uses: Uses = Uses()
    containers: tuple[Container, ...] = ()

    @property
    def held(self) -> bool:
        """Whether Swell holds its object, until its end is noted."""
        return FINALIZER in self.finalizers

    @property
    def up(self) -> bool:
        """Whether all its programs have started and are running."""
        running = [container.state == "running" and container.started for container in self.containers]
        return bool(running) and all(running)

    @property
    def over(self) -> bool:
        """Whether its kubelet reports that no container of it runs or will run."""
        if self.phase in ("Succeeded", "Failed"):
            return True
        if self.let_go and not any(container.state == "running" for container in self.containers):
            return True
        return bool(self.containers) and all(container.state == "terminated" for container in self.containers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeNode:
    """A node of the API server. Amounts are the allocatable ones."""

    name: str
    boot_id: str = ""
    ready: bool = False
    why_not_ready: str = ""
    cordoned: bool = False
    taints: tuple[Taint, ...] = ()
    labels: Mapping[str, str]
    resources: Mapping[str, str]


def pod_of(data: Json, gpu_resource: str) -> Pod:
    meta, spec, status = data["metadata"], data.get("spec") or {}, data.get("status") or {}
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    conditions = {found.get("type", ""): found for found in status.get("conditions") or ()}
    return Pod(
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        uid=meta.get("uid", ""),
        cluster=labels.get(CLUSTER, ""),
        run=_run(labels),
        rank=_rank(labels),
        host=annotations.get(HOST, ""),
        hosts=annotations.get(HOSTS, ""),
        slots=tuple(int(slot) for slot in annotations.get(GPUS, "").split(",") if slot.isdecimal()),
        node=spec.get("nodeName", ""),
        phase=status.get("phase", ""),
        reason=status.get("reason", ""),
        message=status.get("message", ""),
        address=status.get("podIP", ""),
        addresses=annotations.get(ADDRESSES, ""),
        created_s=time_s(meta.get("creationTimestamp")),
        deleted_s=time_s(meta.get("deletionTimestamp")),
        let_go=meta.get("deletionTimestamp") is not None and not meta.get("deletionGracePeriodSeconds"),
        finalizers=tuple(meta.get("finalizers") or ()),
        unschedulable=_unplaced(conditions.get("PodScheduled")),
        disrupted=_disruption(conditions.get("DisruptionTarget")),
        uses=_uses(spec, gpu_resource),
        containers=_containers(spec, status, _rank(labels)),
    )


def _run(labels: Json) -> RunId | None:
    job, attempt = labels.get(JOB, ""), labels.get(ATTEMPT, "")
    ours = labels.get(CLUSTER) and job.isdecimal() and attempt.isdecimal()
    return RunId(int(job), int(attempt)) if ours else None


def _rank(labels: Json) -> int:
    """The rank that Swell wrote, else the one that an operator derived from its template."""
    if RANK not in labels and REPLICA_INDEX in labels:
        return _whole(labels[REPLICA_INDEX]) + 1
    return _whole(labels.get(RANK))


def _whole(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def _unplaced(condition: Json | None) -> str:
    """Why the cluster's scheduler has not placed it; empty if it has, or has not looked yet."""
    if not condition or condition.get("status") != "False":
        return ""
    if condition.get("reason") == "SchedulingGated":
        return _GATED
    if condition.get("reason") == "Unschedulable":
        return condition.get("message") or "Unschedulable"
    return ""


def _disruption(condition: Json | None) -> str:
    if not condition or condition.get("status") != "True":
        return ""
    return condition.get("message") or condition.get("reason") or "disrupted"


def _uses(spec: Json, gpu_resource: str) -> Uses:
    """What the scheduler counts: the sum over its containers, or an init container if that is more. Init containers
    that keep running (sidecars, from version 1.28 on) count with those that come after them."""
    lasting = [_requested(container, gpu_resource) for container in spec.get("containers") or ()]
    sidecars: list[_Amounts] = []
    peaks: list[_Amounts] = []
    for container in spec.get("initContainers") or ():
        asked = _requested(container, gpu_resource)
        if container.get("restartPolicy") == "Always":
            sidecars.append(asked)
        else:
            peaks.append(_sum([*sidecars, asked]))
    peaks.append(_sum([*sidecars, *lasting]))
    most = _Amounts(*(max(one[index] for one in peaks) for index in range(3)))
    gpus, cpus, memory_mib = _sum([most, _amounts(spec.get("overhead") or {}, gpu_resource)])
    return Uses(gpus=int(gpus), cpus=cpus, memory_mib=memory_mib)


def _sum(amounts: Sequence[_Amounts]) -> _Amounts:
    return _Amounts(*(sum(one[index] for one in amounts) for index in range(3)))


def _requested(container: Json, gpu_resource: str) -> _Amounts:
    """The requests of a container; a limit without a request counts as a request."""
    resources = container.get("resources") or {}
    return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})}, gpu_resource)


def _amounts(asked: Json, gpu_resource: str) -> _Amounts:
    gpus, cpus, memory = (quantity(asked.get(name, 0)) for name in (gpu_resource, "cpu", "memory"))
    return _Amounts(gpus, cpus, memory / 2**20)


def _containers(spec: Json, status: Json, rank: int) -> tuple[Container, ...]:
    """The worker containers, in order of rank, with or without a report of their kubelet."""
    told = {found.get("name", ""): found for found in status.get("containerStatuses") or ()}
    names = [container.get("name", "") for container in spec.get("containers") or ()]
    ranks = {name: int(match[1]) for name in names if (match := _RANK_NAME.fullmatch(name))}
    if WORKER in names:
        ranks[WORKER] = rank
    return tuple(_container(rank, name, told.get(name) or {}) for name, rank in ranks.items())


def _container(rank: int, name: str, told: Json) -> Container:
    states: Json = told.get("state") or {}
    state = next(iter(states), "")
    found: Json = states.get(state) or {}
    return Container(
        rank=rank,
        name=name,
        state=state,
        started=bool(told.get("started")),
        reason=found.get("reason", ""),
        message=found.get("message", ""),
        exit_code=found.get("exitCode"),
        finished_s=time_s(found.get("finishedAt")),
    )


def node_of(data: Json) -> KubeNode:
    meta, spec, status = data["metadata"], data.get("spec") or {}, data.get("status") or {}
    conditions: Sequence[Json] = status.get("conditions") or ()
    ready = next((found for found in conditions if found.get("type") == "Ready"), {})
    return KubeNode(
        name=meta["name"],
        boot_id=(status.get("nodeInfo") or {}).get("bootID", ""),
        ready=ready.get("status") == "True",
        why_not_ready=ready.get("message") or "its kubelet has not reported yet",
        cordoned=bool(spec.get("unschedulable")),
        taints=tuple(
            Taint(key=found.get("key", ""), value=found.get("value", ""), effect=found.get("effect", ""))
            for found in spec.get("taints") or ()
        ),
        labels=dict(meta.get("labels") or {}),
        resources=dict(status.get("allocatable") or {}),
    )
