"""Plays the MPI operator of Kubeflow on a real cluster: from an MPIJob it makes worker pods, a batch Job with the
launcher and the ConfigMap of hosts; it takes the highest workers away when there are to be fewer. Beside it a name
server, for the names by which horovodrun finds workers (the clusters of these tests have none).

The resource has the fields of the published definition (mpi-operator 0.4, kubeflow.org_mpijobs.yaml); what is not
among them would be dropped by the API server. Pod templates are left to whoever creates pods of them.
"""

from __future__ import annotations

import asyncio
import copy
import json
import socketserver
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kubernetes.cluster import GATEWAY, NAMESPACE, Cluster
from swell.executors.kubernetes.api import Api, Refusal, connect, namespaced
from swell.executors.kubernetes.mpijob import GROUP, PLURAL, VERSION, path_of
from swell.executors.kubernetes.settings import KubernetesSettings

Json = dict[str, Any]

_INT, _TEXT, _FLAG = {"type": "integer", "format": "int32"}, {"type": "string"}, {"type": "boolean"}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}


def _object(required: Sequence[str] = (), **properties: Any) -> Json:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


TEMPLATE = _object(
    metadata=_object(
        annotations=_TEXTS,
        labels=_TEXTS,
        finalizers={"type": "array", "items": _TEXT},
        name=_TEXT,
        namespace=_TEXT,
    ),
    spec={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
)
SPEC = _object(
    ["mpiReplicaSpecs"],
    mpiImplementation={"type": "string", "enum": ["OpenMPI", "Intel"], "default": "OpenMPI"},
    mpiReplicaSpecs={
        "type": "object",
        "additionalProperties": _object(replicas=_INT, restartPolicy=_TEXT, template=TEMPLATE),
    },
    runPolicy=_object(
        activeDeadlineSeconds={"type": "integer", "format": "int64"},
        backoffLimit=_INT,
        cleanPodPolicy=_TEXT,
        schedulingPolicy={"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        suspend={**_FLAG, "default": False},
        ttlSecondsAfterFinished=_INT,
    ),
    slotsPerWorker={**_INT, "default": 1},
    sshAuthMountPath={**_TEXT, "default": "/root/.ssh"},
    waitForWorkers=_FLAG,
)
DEFINITION: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "MPIJob", "listKind": "MPIJobList", "plural": PLURAL, "singular": "mpijob"},
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": _object(
                        spec=SPEC, status={"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                    )
                },
            }
        ],
    },
}
DNS: Json = {"dnsPolicy": "None", "dnsConfig": {"nameservers": [GATEWAY]}}
"""Of pods that ask the name server below."""
JOB_NAME, INDEX, ROLE = (f"training.kubeflow.org/{name}" for name in ("job-name", "replica-index", "job-role"))
EVERY_S = 0.3


class Operator:
    def __init__(self, api: Api, names: dict[str, str]) -> None:
        self._api = api
        self._names = names

    async def run(self, leave: threading.Event) -> None:
        while not leave.is_set():
            listed = await self._api.get(path_of(NAMESPACE))
            for job in listed["items"]:
                if "deletionTimestamp" not in job["metadata"]:
                    await self._reconcile(job)
            await asyncio.sleep(EVERY_S)

    async def _reconcile(self, job: Json) -> None:
        name, spec = job["metadata"]["name"], job["spec"]["mpiReplicaSpecs"]
        found = await self._api.get(namespaced(NAMESPACE, "pods"), labelSelector=f"{JOB_NAME}={name},{ROLE}=worker")
        workers = {int(pod["metadata"]["labels"][INDEX]): pod for pod in found["items"]}
        over = await self._launcher_is_over(name)
        wanted = 0 if over else spec["Worker"]["replicas"]
        for index in range(wanted):
            if index not in workers:
                await self._create("pods", worker(job, index))
        for index, pod in workers.items():
            if index >= wanted and "deletionTimestamp" not in pod["metadata"]:
                await self._api.delete(namespaced(NAMESPACE, "pods", pod["metadata"]["name"]))
        running = [pod for index, pod in sorted(workers.items()) if index < wanted and _runs(pod)]
        self._names.update({host_of(job, pod): pod["status"]["podIP"] for pod in running})
        await self._tell_hosts(job, running)
        if not over:
            await self._create("jobs", launcher(job), group="batch/v1")

    async def _tell_hosts(self, job: Json, running: Sequence[Json]) -> None:
        script = "#!/bin/sh\n" + "".join(f"echo {host_of(job, pod)}\n" for pod in running)
        name = f"{job['metadata']['name']}-config"
        data = {"hostfile": "", "discover_hosts.sh": script}
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _owned(job, name), "data": data}
        if not await self._create("configmaps", made):
            await self._api.patch(namespaced(NAMESPACE, "configmaps", name), {"data": data})

    async def _launcher_is_over(self, name: str) -> bool:
        try:
            found = await self._api.get(namespaced(NAMESPACE, "jobs", f"{name}-launcher", group="batch/v1"))
        except Refusal:
            return False
        status = found.get("status") or {}
        return bool(status.get("succeeded") or status.get("failed"))

    async def _create(self, kind: str, manifest: Json, group: str = "") -> bool:
        """Whether it was not there. A pod of that name that is on its way out is waited for."""
        try:
            await self._api.create(namespaced(NAMESPACE, kind, group=group), manifest)
        except Refusal as refusal:
            if refusal.code != 409:
                raise
            return False
        return True


def _runs(pod: Json) -> bool:
    status = pod.get("status") or {}
    return bool(status.get("phase") == "Running" and status.get("podIP") and "deletionTimestamp" not in pod["metadata"])


def host_of(job: Json, pod: Json) -> str:
    return f"{pod['metadata']['name']}.{job['metadata']['name']}.{NAMESPACE}.svc"


def _owned(job: Json, name: str, labels: Mapping[str, str] = {}) -> Json:
    owner = {"apiVersion": job["apiVersion"], "kind": job["kind"], "controller": True}
    owner |= {key: job["metadata"][key] for key in ("name", "uid")}
    return {"name": name, "namespace": NAMESPACE, "labels": dict(labels), "ownerReferences": [owner]}


def _template(job: Json, role: str, labels: Mapping[str, str]) -> Json:
    """Labels and annotations of the template, its finalizers not."""
    spec = job["spec"]["mpiReplicaSpecs"][role.capitalize()]
    made: Json = copy.deepcopy(spec["template"])
    own = {JOB_NAME: job["metadata"]["name"], ROLE: role, **labels}
    made["metadata"] = {
        "labels": {**made["metadata"].get("labels", {}), **own},
        "annotations": made["metadata"].get("annotations", {}),
    }
    made["spec"] |= {"restartPolicy": spec["restartPolicy"], "subdomain": job["metadata"]["name"]}
    return made


def worker(job: Json, index: int) -> Json:
    name = f"{job['metadata']['name']}-worker-{index}"
    made = _template(job, "worker", {INDEX: str(index)})
    made["spec"]["hostname"] = name
    meta = {**made["metadata"], **_owned(job, name, made["metadata"]["labels"])}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": made["spec"]}


def launcher(job: Json) -> Json:
    name = job["metadata"]["name"]
    template = _template(job, "launcher", {})
    items = [{"key": "hostfile", "path": "hostfile"}, {"key": "discover_hosts.sh", "path": "discover_hosts.sh"}]
    hosts = {"name": f"{name}-config", "items": [{**item, "mode": 0o555} for item in items]}
    template["spec"].setdefault("volumes", []).append({"name": "mpi-job-config", "configMap": hosts})
    for container in template["spec"]["containers"]:
        container.setdefault("volumeMounts", []).append({"name": "mpi-job-config", "mountPath": "/etc/mpi"})
    spec = {"backoffLimit": job["spec"]["runPolicy"]["backoffLimit"], "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _owned(job, f"{name}-launcher"), "spec": spec}


class _Questions(socketserver.BaseRequestHandler):
    """Names of workers to addresses, over UDP; everything else has none."""

    names: dict[str, str]

    def handle(self) -> None:
        asked, reply = self.request
        words, at = [], 12
        while asked[at]:
            words.append(asked[at + 1 : at + 1 + asked[at]].decode())
            at += 1 + asked[at]
        question = asked[12 : at + 5]
        address = self.names.get(".".join(words)) if question[-4:] == b"\0\1\0\1" else None
        head = asked[:2] + struct.pack(">HHHHH", 0x8580, 1, 1 if address else 0, 0, 0)
        answer = (
            b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + bytes(map(int, address.split("."))) if address else b""
        )
        reply.sendto(head + question + answer, self.client_address)


@contextmanager
def operating(cluster: Cluster) -> Iterator[None]:
    """The resource is installed, and its objects come to life."""
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(DEFINITION))
    cluster.kubectl("wait", "--for=condition=Established", f"crd/{PLURAL}.{GROUP}", "--timeout=60s")
    names: dict[str, str] = {}
    leave, failed = threading.Event(), []

    async def play() -> None:
        api = connect(KubernetesSettings(kubeconfig=str(cluster.kubeconfig), requests_per_s=50.0))
        try:
            await Operator(api, names).run(leave)
        finally:
            await api.close()

    def work() -> None:
        try:
            asyncio.run(play())
        except Exception as error:  # whoever waits for its pods must hear of it
            failed.append(error)

    handler = type("Questions", (_Questions,), {"names": names})
    with socketserver.UDPServer((GATEWAY, 53), handler) as server:
        threads = [threading.Thread(target=work), threading.Thread(target=server.serve_forever)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            leave.set()
            server.shutdown()
            for thread in threads:
                thread.join()
            cluster.kubectl("delete", "crd", f"{PLURAL}.{GROUP}", "--timeout=60s")
    assert not failed, failed
