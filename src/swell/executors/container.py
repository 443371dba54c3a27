"""What a worker with an image needs of its node's container runtime. Pure and golden-tested.

`container_of` makes the plain value that goes into the worker's request; on the node, `shim.container_argv` makes the
runtime's command line of it, and `shim.containers` runs it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swell.core.ids import RunId
from swell.core.resources import Node
from swell.ports import Worker

_AMD = re.compile(r"(amd|mi[0-9]{2,3}|radeon|gfx)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSettings:
    """The operator's settings for one node. `mount_sources`: jobs may mount only below these (`~`: the user's home)."""

    cluster_id: str = ""
    runtime: str = ""  # podman, docker, or a path; empty: the first of them on the node's PATH
    options: tuple[str, ...] = ()  # added to every `run`
    mount_sources: tuple[str, ...] = ("~",)
    shm_mib: int = 0  # size of /dev/shm; 0: the runtime's own default
    pids: int = 0  # processes and threads of a container; 0: the runtime's own default
    pull_timeout_s: float = 3600.0
    gpu_probe_s: float = 60.0  # interval of the check that a container still has its GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """Swell's own directories and files, mounted into the container at the same paths."""

    work_dir: str
    checkpoints_dir: str  # empty: the user mounts one
    sdk_dir: str
    journal: str
    socket_dir: str = ""  # of the socket by which the library reaches the daemon; empty: it uses the network


def container_of(run: RunId, worker: Worker, node: Node, own: Own, settings: ContainerSettings) -> dict[str, Any]:
    """The `container` part of a worker's request. It holds no secrets, and nothing that only the node knows."""
    return {
        "runtime": settings.runtime,
        "options": list(settings.options),
        "image": worker.image,
        "name": name_of(settings.cluster_id, run, worker.rank),
        "labels": {"swell.cluster": settings.cluster_id, "swell.run": str(run), "swell.rank": str(worker.rank)},
        "mounts": [*_own_mounts(own), *_their_mounts(worker)],
        "sources": list(settings.mount_sources),
        "ports": dict(worker.ports) if worker.rank == 0 else {},
        "workdir": worker.cwd,
        "gpus": gpus_of(worker, node),
        "cpus": worker.cpus,
        "memory_mib": worker.memory_mib,
        "shm_mib": settings.shm_mib,
        "pids": settings.pids,
        "pull_timeout_s": settings.pull_timeout_s,
        "gpu_probe_s": settings.gpu_probe_s,
    }


def name_of(cluster_id: str, run: RunId, rank: int) -> str:
    return f"swell-{cluster_id[:12] or 'local'}-{run.job}-{run.attempt}-{rank}"


def _own_mounts(own: Own) -> list[dict[str, Any]]:
    kept = [own.work_dir, *([own.checkpoints_dir] if own.checkpoints_dir else [])]
    return [
        *({"source": path, "target": path, "make": "directory"} for path in kept),
        {"source": own.journal, "target": own.journal, "make": "file"},
        {"source": own.sdk_dir, "target": own.sdk_dir, "read_only": True, "make": ""},
        *([{"source": own.socket_dir, "target": own.socket_dir, "make": ""}] if own.socket_dir else []),
    ]


def _their_mounts(worker: Worker) -> list[dict[str, Any]]:
    """The job's mounts. The node checks them against the sources that its operator allows."""
    return [
        {"source": m.source, "target": posixpath.normpath(m.target), "read_only": m.read_only} for m in worker.mounts
    ]


def gpus_of(worker: Worker, node: Node) -> dict[str, Any]:
    """The devices to pass to the container. Declared slots have no device."""
    real = {gpu.index: gpu for gpu in node.gpus if gpu.memory_mib}
    held = [real[index] for index in worker.gpus if index in real]
    amd = any(_AMD.match(gpu.type) for gpu in held)
    return {
        "vendor": "amd" if amd else "nvidia" if held else "",
        "indices": [gpu.index for gpu in held],
        "uuids": [gpu.uuid or str(gpu.index) for gpu in held],
    }


def environment_inside(env: Mapping[str, str], gpus: Mapping[str, Any]) -> dict[str, str]:
    """A container sees only its own GPUs, counted from 0."""
    found = dict(env)
    if gpus["vendor"]:
        found["CUDA_VISIBLE_DEVICES"] = ",".join(str(number) for number in range(len(gpus["indices"])))
    return found
