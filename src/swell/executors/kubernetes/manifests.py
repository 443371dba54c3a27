"""Turns an order into the objects to create for it, as plain values. Pure and golden-tested.

A run is one ConfigMap, which owns the other objects and is deleted last; one Secret with values that must not be in a
pod's spec; and one pod per node of its allocation, with one container per worker: workers of a node share its network
(loopback) and shared memory, as on a machine outside of Kubernetes. Names are derived from the run, so a repeated
creation finds the existing objects.

By node affinity the cluster's scheduler accounts for Swell's decision, and can refuse it with a reason. Pods reach each
other by their addresses, which are known only once all of them have one: until then `address_of` is a placeholder,
which `shim/pod.py` replaces.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from swell.core.capacity import cpus_of
from swell.core.errors import Infeasible
from swell.core.ids import RunId
from swell.core.job import JobSpec, PodOptions, PodVolume
from swell.core.resources import Node, Part
from swell.core.state import JobRecord
from swell.executors.kubernetes.inventory import tolerated
from swell.executors.kubernetes.mpi_run import Host
from swell.executors.kubernetes.objects import ADDRESSES, ATTEMPT, CLUSTER, FINALIZER, GPUS, JOB, RANK
from swell.executors.kubernetes.settings import KubernetesSettings
from swell.executors.launchers import HOST_GPUS
from swell.executors.request import LaunchContext, build_launch
from swell.executors.verdict import Roster, roster_of
from swell.ports import Launch, Worker

Manifest = dict[str, Any]

LIBRARY, RUN_DIR, DATA, POD_INFO = "/swell/lib", "/swell/run", "/swell/data", "/swell/pod"
"""Directories in a pod: Swell's library, files of this pod, files of its job, information about the pod."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the container's own, shared by the workers of a pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The input of manifests besides the order."""

    cluster: str
    namespace: str
    library: str  # name of the ConfigMap with the library
    library_paths: Mapping[str, str]  # key in that ConfigMap -> path under LIBRARY
    url: str
    token: str
    settings: KubernetesSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class RunObjects:
    """The objects of a run, in the order of their creation."""

    roster: Roster
    config_map: Manifest
    secret: Manifest
    pods: tuple[Manifest, ...] = ()
    mpijob: Manifest | None = None  # instead of pods, which an operator makes
    hosts: tuple[Host, ...] = ()  # its workers

    @property
    def namespace(self) -> str:
        namespace: str = self.config_map["metadata"]["namespace"]
        return namespace


def name_of(cluster: str, run: RunId) -> str:
    return f"swell-{cluster[:8]}-{run.job}-{run.attempt}"


def address_of(node_rank: int) -> str:
    """The placeholder for the address of the run's pod on this node."""
    return f"@swell-address-{node_rank}@"


def labels_of(cluster: str, run: RunId) -> dict[str, str]:
    return {CLUSTER: cluster, JOB: str(run.job), ATTEMPT: str(run.attempt)}


def objects_of(record: JobRecord, nodes: Mapping[str, Node], site: Site, make: Make | None = None) -> RunObjects:
    """Raises Infeasible, with what to do, if pods cannot run the job. `make` adds the pods; unset: bare pods."""
    assert record.run is not None
    check_storage(record.spec, site.settings)
    names = record.run.allocation.nodes
    placed = {name: replace(nodes[name], address=address_of(rank)) for rank, name in enumerate(names)}
    return objects_for(record, nodes, build_launch(record, placed, dict.fromkeys(names, context(site))), site, make)


def objects_for(
    record: JobRecord, nodes: Mapping[str, Node], launch: Launch, site: Site, make: Make | None = None
) -> RunObjects:
    assert record.run is not None
    run = record.run
    options = record.spec.kubernetes or PodOptions()
    namespace = options.namespace or site.namespace
    meta = {"name": name_of(site.cluster, run.id), "namespace": namespace, "labels": labels_of(site.cluster, run.id)}
    pods = Pods(record=record, site=site, meta=meta, nodes=nodes, hidden=frozenset(launch.secrets))
    values = {name: value for worker in launch.workers for name, value in worker.env.items() if name in pods.hidden}
    first = RunObjects(
        roster=roster_of(launch),
        config_map={"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {}},
        secret={"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": dict(sorted(values.items()))},
    )
    return (make or as_pods)(pods, launch, first)


def as_pods(pods: Pods, launch: Launch, first: RunObjects) -> RunObjects:
    """One pod per node."""
    assert pods.record.run is not None
    parts = pods.record.run.allocation.parts
    workers = [[worker for worker in launch.workers if worker.node == part.node] for part in parts]
    made = (pods.pod(rank, part, workers[rank]) for rank, part in enumerate(parts))
    return replace(first, pods=tuple(made))


def check_storage(spec: JobSpec, settings: KubernetesSettings) -> None:
    """Checks the job against the daemon's configuration; `core.pods` has checked the rest at submit."""
    if spec.resumable and not settings.has_storage and not (spec.kubernetes and spec.kubernetes.volumes):
        raise Infeasible(
            "its checkpoints would be lost with its pod: set `storage_claim` (a ReadWriteMany claim) or `storage_path` "
            "under `kubernetes:` in the daemon's config.yaml, or mount a volume of your own (`kubernetes: volumes:` in "
            "the job file) and save there"
        )


def context(site: Site) -> LaunchContext:
    return LaunchContext(
        url=site.url,
        token=site.token,
        runs_dir=RUN_DIR,
        checkpoints_dir=f"{DATA}/checkpoints",
        work_dir=f"{DATA}/work",
        sdk_dir=f"{LIBRARY}/sdk",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """The common parts of all pods of a run."""

    record: JobRecord
    site: Site
    meta: Mapping[str, Any]
    nodes: Mapping[str, Node]
    hidden: frozenset[str]  # variables whose values are in the run's Secret

    @property
    def spec(self) -> JobSpec:
        return self.record.spec

    @property
    def options(self) -> PodOptions:
        return self.spec.kubernetes or PodOptions()

    def pod(self, rank: int, part: Part, workers: Sequence[Worker]) -> Manifest:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **self.meta,
                "name": f"{self.meta['name']}-{rank}",
                "labels": {**self.meta["labels"], RANK: str(rank)},
                "annotations": {GPUS: ",".join(map(str, part.gpus))},
                "finalizers": [FINALIZER],
            },
            "spec": merged(self.pod_spec(part.node, workers), self.options.overrides),
        }

    def pod_spec(self, node: str, workers: Sequence[Worker]) -> Manifest:
        options = self.options
        pod: Manifest = {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": max(1, math.ceil(self.spec.grace_s)),
            "enableServiceLinks": False,
            "automountServiceAccountToken": bool(options.service_account),
            "affinity": on(node),
            "tolerations": [
                *_patient(),
                *({"key": key, "operator": "Exists"} for key in tolerated(self.site.settings)),
            ],
            "volumes": [*_own_volumes(self.site), *(_volume(i, v) for i, v in enumerate(options.volumes))],
            "containers": [self.container(worker) for worker in workers],
        }
        if options.service_account:
            pod["serviceAccountName"] = options.service_account
        if options.priority_class:
            pod["priorityClassName"] = options.priority_class
        if options.pull_secrets:
            pod["imagePullSecrets"] = [{"name": name} for name in options.pull_secrets]
        return pod

    def container(self, worker: Worker) -> Manifest:
        """The container of a worker. Its program is up once `shim/pod.py` has noted that, which the startup probe
        checks."""
        job_files = f"{self.site.cluster}/{self.record.id}"
        return {
            "name": f"rank-{worker.rank}",
            "image": self.spec.image,
            "command": ["/bin/sh", f"{LIBRARY}/start.sh"],
            "args": [_literal(word) for word in worker.argv],
            "env": [self._variable(name, value) for name, value in self._env(worker).items()],
            "resources": self.resources(worker),
            "volumeMounts": [*_own_mounts(job_files), *(_mount(i, v) for i, v in enumerate(self.options.volumes))],
            "startupProbe": {
                "exec": {"command": ["/bin/sh", "-c", f"test -f {RUN_DIR}/up-{worker.rank}"]},
                "periodSeconds": 1,
                "failureThreshold": 10**6,
            },
        }

    def resources(self, worker: Worker) -> Manifest:
        """CPUs are scaled to the node's real ones if Swell accounts more (`cpus_of`), as the cluster would refuse more.
        Memory is a limit, so a worker that needs more is killed, not its neighbours."""
        node, gpu_resource = self.nodes[worker.node], self.site.settings.gpu_resource
        milli = 1000 * worker.cpus * min(node.cpus, cpus_of(node)) // max(1, cpus_of(node))
        asked: Manifest = {"cpu": f"{milli}m"} if milli else {}
        limits: Manifest = {gpu_resource: str(len(worker.gpus))} if worker.gpus else {}
        if worker.memory_mib:
            asked["memory"] = limits["memory"] = f"{worker.memory_mib}Mi"
        return {"requests": asked, "limits": limits}

    def _env(self, worker: Worker) -> dict[str, str]:
        """The environment, without a choice of devices, which the device plugin makes; a worker without GPUs must not
        see those of others."""
        env = dict(worker.env)
        env.pop(HOST_GPUS, None)
        if worker.gpus:
            env.pop("CUDA_VISIBLE_DEVICES", None)
        else:
            env["NVIDIA_VISIBLE_DEVICES"] = "void"
        env["SWELL_POD_CWD"], env["SWELL_POD_UP"] = worker.cwd, f"{RUN_DIR}/up-{worker.rank}"
        if self.site.settings.lease_s:
            env["SWELL_POD_NODE"], env["SWELL_POD_GRACE_S"] = worker.node, f"{self.spec.grace_s:g}"
        if self.spec.files:
            env["SWELL_POD_FILES"] = f"{DATA}/work/{self.record.id}"
        if self.record.run is not None and len(self.record.run.allocation.parts) > 1:
            env["SWELL_POD_ADDRESSES"] = f"{POD_INFO}/addresses"
        if worker.path_first:
            env["SWELL_POD_PATH"] = ":".join(worker.path_first)
        return dict(sorted(env.items()))

    def _variable(self, name: str, value: str) -> Manifest:
        if name in self.hidden:
            return {"name": name, "valueFrom": {"secretKeyRef": {"name": self.meta["name"], "key": name}}}
        return {"name": name, "value": _literal(value)}


Make = Callable[[Pods, Launch, RunObjects], RunObjects]


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Manifest:
    """Mappings are merged, lists of things by name (containers, volumes) or, without one, added to (tolerations);
    everything else is replaced."""
    result = dict(base)
    for key, value in over.items():
        before = result.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            result[key] = merged(before, value)
        elif isinstance(before, list) and isinstance(value, list | tuple):
            result[key] = _merged_list(before, value)
        else:
            result[key] = value
    return result


def _merged_list(base: Sequence[Any], over: Sequence[Any]) -> list[Any]:
    if not all(isinstance(item, Mapping) for item in (*base, *over)):
        return list(over)
    named = {item["name"]: item for item in over if "name" in item}
    there = {item["name"] for item in base if "name" in item}
    known = [merged(item, named[item["name"]]) if item.get("name") in named else item for item in base]
    return [*known, *(item for item in over if item.get("name") not in there)]


def on(node: str) -> Manifest:
    """Node affinity by the node's name, not by its hostname label, which may differ."""
    wanted = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [wanted]}}}


def _patient() -> list[Manifest]:
    """Tolerations by which a node that is silent for some minutes keeps its pods: their lease decides about them."""
    keys = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    return [{"key": key, "operator": "Exists", "effect": "NoExecute"} for key in keys]


def _literal(text: str) -> str:
    """Escapes `$(NAME)`, which Kubernetes would replace by a variable."""
    return text.replace("$", "$$")


def _own_volumes(site: Site) -> list[Manifest]:
    items = [{"key": key, "path": path} for key, path in site.library_paths.items()]
    addresses = {"path": "addresses", "fieldRef": {"fieldPath": f"metadata.annotations['{ADDRESSES}']"}}
    return [
        {"name": "swell-lib", "configMap": {"name": site.library, "items": items, "defaultMode": 0o555}},
        {"name": "swell-run", "emptyDir": {}},
        {"name": "swell-shm", "emptyDir": {"medium": "Memory"}},
        {"name": "swell-pod", "downwardAPI": {"items": [addresses]}},
        {"name": "swell-data", **_storage(site.settings)},
    ]


def _storage(settings: KubernetesSettings) -> Manifest:
    if settings.storage_path:
        return {"hostPath": {"path": settings.storage_path, "type": "Directory"}}
    if settings.storage_claim:
        return {"persistentVolumeClaim": {"claimName": settings.storage_claim}}
    return {"emptyDir": {}}


def _own_mounts(job_files: str) -> list[Manifest]:
    """A pod sees the files of its own job only."""
    return [
        {"name": "swell-lib", "mountPath": LIBRARY, "readOnly": True},
        {"name": "swell-run", "mountPath": RUN_DIR},
        {"name": "swell-shm", "mountPath": SHARED_MEMORY},
        {"name": "swell-pod", "mountPath": POD_INFO, "readOnly": True},
        {"name": "swell-data", "mountPath": DATA, "subPath": job_files},
    ]


def _volume(index: int, volume: PodVolume) -> Manifest:
    name = f"volume-{index}"
    if volume.claim:
        return {"name": name, "persistentVolumeClaim": {"claimName": volume.claim, "readOnly": volume.read_only}}
    if volume.config_map:
        return {"name": name, "configMap": {"name": volume.config_map}}
    if volume.secret:
        return {"name": name, "secret": {"secretName": volume.secret}}
    return {"name": name, "hostPath": {"path": volume.host_path}}


def _mount(index: int, volume: PodVolume) -> Manifest:
    return {"name": f"volume-{index}", "mountPath": volume.mount, "readOnly": volume.read_only}


def owned(manifest: Manifest, name: str, uid: str) -> Manifest:
    """The object, owned by the run's ConfigMap, so that it is deleted with it."""
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}


def library_of(files: Mapping[str, bytes], cluster: str, namespace: str) -> tuple[Manifest, dict[str, str]]:
    """The ConfigMap with the in-job library and the program that starts a worker, named by its content; and for
    volumes, the path of each of its keys."""
    paths = {f"f{index}": path for index, path in enumerate(sorted(files))}
    digest = hashlib.sha256(b"".join(path.encode() + b"\0" + files[path] for path in sorted(files))).hexdigest()[:10]
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"swell-{cluster[:8]}-lib-{digest}", "namespace": namespace, "labels": {CLUSTER: cluster}},
        "immutable": True,
        "data": {key: files[path].decode() for key, path in paths.items()},
    }
    return manifest, paths
