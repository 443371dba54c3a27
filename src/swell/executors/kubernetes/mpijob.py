"""A run of the launchers mpi and horovod as one MPIJob (kubeflow.org/v2beta1), whose operator makes its pods. Pure.

`horovod`: one worker per GPU, so that the number of workers is the number of GPUs, and can change in place. `mpi`: one
worker per node with all its GPUs there. The launcher is on the first node; it starts when Swell has written the
workers' addresses on its pod, so that of several launchers (Kubernetes makes another one if somebody deletes the
first) only one ever starts. mpirun reaches workers by these addresses; horovodrun by the names of
the operator's host discovery.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from swell.core.job import JobSpec, Launcher
from swell.core.resources import Part
from swell.executors.kubernetes.api import namespaced
from swell.executors.kubernetes.manifests import POD_INFO, RUN_DIR, Manifest, Pods, RunObjects, address_of, merged, on
from swell.executors.kubernetes.mpi_run import Host, roster_with, stage
from swell.executors.kubernetes.objects import HOST, RANK, WORKER
from swell.executors.launchers import horovod_argv, mpi_argv
from swell.ports import Launch, Worker

GROUP, VERSION, PLURAL = "kubeflow.org", "v2beta1", "mpijobs"
DISCOVERY = "/etc/mpi/discover_hosts.sh"
"""Where the operator mounts the script that lists the running workers."""
SSH_SERVER = ("/usr/sbin/sshd", "-De")
_HOSTS_COME_BACK = ("--slots-per-host", "1", "--blacklist-cooldown-range", "30", "100")
"""horovodrun bans a host that failed. A worker that is made again has the same name, so the ban has to end, after 30
to 100 s."""
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
"""Containers often have no user but root, which mpirun refuses without these."""
_UNPLACED = address_of(0).split("0", maxsplit=1)[0]


def path_of(namespace: str, name: str = "") -> str:
    return namespaced(namespace, PLURAL, name, group=f"{GROUP}/{VERSION}")


def as_mpijob(pods: Pods, launch: Launch, first: RunObjects) -> RunObjects:
    """See `manifests.objects_of`: `launch` has one worker, which is what the launcher runs."""
    (process,) = launch.workers
    hosts = hosts_of(pods, process)
    count, host = stage(hosts, {})
    spec = {
        "slotsPerWorker": max(1, len(hosts[0].gpus)),
        "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0},
        "mpiReplicaSpecs": {
            "Launcher": _replicas(1, _launcher(pods, process, hosts)),
            "Worker": _replicas(count, _worker(pods, process, host)),
        },
    }
    meta = {name: pods.meta[name] for name in ("name", "namespace", "labels")}
    made = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "MPIJob", "metadata": meta, "spec": spec}
    return replace(first, roster=roster_with(first.roster, hosts), mpijob=made, hosts=hosts)


def hosts_of(pods: Pods, process: Worker) -> tuple[Host, ...]:
    assert pods.record.run is not None
    parts = pods.record.run.allocation.parts
    if pods.spec.launcher is Launcher.HOROVOD:
        single: list[tuple[Part, tuple[int, ...]]] = [(part, (gpu,)) for part in parts for gpu in part.gpus]
        return tuple(_host(pods, process, part, gpus) for part, gpus in single or [(parts[0], ())])
    return tuple(_host(pods, process, part, part.gpus) for part in parts)


def _host(pods: Pods, process: Worker, part: Part, gpus: tuple[int, ...]) -> Host:
    processes = max(1, len(gpus))
    asks = replace(
        process,
        node=part.node,
        gpus=gpus,
        cpus=processes * process.cpus,
        memory_mib=processes * process.memory_mib,
    )
    return Host(node=part.node, gpus=gpus, resources=pods.resources(asks))


def _replicas(count: int, template: Manifest) -> Manifest:
    return {"replicas": count, "restartPolicy": "Never", "template": template}


def _launcher(pods: Pods, process: Worker, hosts: tuple[Host, ...]) -> Manifest:
    """The launcher has no GPU, but passes its environment to workers with GPUs, so it must not hide theirs."""
    env = {**_AS_ROOT, **process.env}
    program = replace(process, argv=_argv(pods.spec, hosts), env=env, gpus=(), cpus=0, memory_mib=0)
    container = pods.container(program)
    hidden = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "SWELL_POD_ADDRESSES")
    kept = [variable for variable in container["env"] if variable["name"] not in hidden]
    container["env"] = [*kept, {"name": "SWELL_POD_ADDRESSES", "value": f"{POD_INFO}/addresses"}]
    return _template(pods, process.node, container, {RANK: "0"}, {})


def _argv(spec: JobSpec, hosts: tuple[Host, ...]) -> tuple[str, ...]:
    if spec.launcher is Launcher.HOROVOD:
        return horovod_argv(spec, len(hosts), DISCOVERY, _HOSTS_COME_BACK)
    slots = [(address_of(index), max(1, len(host.gpus))) for index, host in enumerate(hosts)]
    return mpi_argv(spec, slots, elsewhere=True)


def _worker(pods: Pods, process: Worker, host: Host) -> Manifest:
    """A worker. Its shim ends the SSH server, and all processes started through it, when the run's lease expires."""
    env = {name: value for name, value in process.env.items() if _UNPLACED not in value and name != "SWELL_RANK"}
    program = replace(process, argv=pods.options.worker_command or SSH_SERVER, env=env, gpus=host.gpus)
    container = pods.container(program)
    up = f"{RUN_DIR}/up-{WORKER}"
    own: dict[str, Manifest] = {
        "SWELL_POD_NODE": {"valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        "SWELL_POD_UP": {"value": up},
    }
    container["env"] = [
        {"name": variable["name"], **own.get(variable["name"], variable)}
        for variable in container["env"]
        if variable["name"] != "SWELL_POD_ADDRESSES"
    ]
    container |= {"name": WORKER, "resources": host.resources}
    container["startupProbe"] = {
        **container["startupProbe"],
        "exec": {"command": ["/bin/sh", "-c", f"test -f {up}"]},
    }
    return _template(pods, host.node, container, {}, {HOST: host.node})


def _template(
    pods: Pods, node: str, container: Manifest, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> Manifest:
    """The operator copies labels and annotations, but no finalizers: those are added when the pod is seen."""
    spec = pods.pod_spec(node, [])
    del spec["restartPolicy"]  # the replicas' own
    spec["containers"] = [container]
    return {
        "metadata": {"labels": {**pods.meta["labels"], **labels}, "annotations": dict(annotations)},
        "spec": merged(spec, _overrides(pods.options.overrides, container["name"])),
    }


def _overrides(overrides: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The overrides without those of the other template's container."""
    containers = overrides.get("containers")
    if not isinstance(containers, list | tuple):
        return overrides
    others = {WORKER, "rank-0"} - {name}
    return {**overrides, "containers": [one for one in containers if one.get("name") not in others]}


def staged(found: Manifest, replicas: int, host: Host) -> Manifest | None:
    """The patch by which the MPIJob has `replicas` workers and makes new ones for this host; None: it has."""
    worker = found["spec"]["mpiReplicaSpecs"]["Worker"]
    template = worker["template"]
    container = {**template["spec"]["containers"][0], "resources": host.resources}
    named = (template["metadata"].get("annotations") or {}).get(HOST)
    if (worker["replicas"], named, template["spec"]["containers"][0]) == (replicas, host.node, container):
        return None
    spec = {"affinity": on(host.node), "containers": [container, *template["spec"]["containers"][1:]]}
    patch = {"replicas": replicas, "template": {"metadata": {"annotations": {HOST: host.node}}, "spec": spec}}
    return {"spec": {"mpiReplicaSpecs": {"Worker": patch}}}


def discovered(config_map: Manifest) -> frozenset[str]:
    """The workers that the operator's host discovery lists, by the names of their pods."""
    lines = (config_map.get("data") or {}).get("discover_hosts.sh", "").splitlines()
    words = (line.split() for line in lines)
    return frozenset(found[1].split(".")[0].split(":")[0] for found in words if len(found) > 1 and found[0] == "echo")
