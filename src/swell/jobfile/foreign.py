"""What job files of other systems call things, and what to write here instead. `jobfile.expand` asks it about unknown
fields and about whole documents that are no job files. Pure data and text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from swell.jobfile.problems import Problem

SAME_VALUE: Mapping[str, str] = {
    "afterany": "after_any",
    "afternotok": "after_failure",
    "afterok": "depends_on",
    "artifacts": "outputs",
    "cmd": "command",
    "dependencies": "depends_on",
    "docker_image": "image",
    "environment": "env",
    "est_nhours": "estimated_hours",
    "gpu": "gpus",
    "image_name": "image",
    "job_name": "name",
    "jobname": "name",
    "max_epochs": "epochs",
    "ngpus": "gpus",
    "num_gpus": "gpus",
    "output": "outputs",
    "required_gpus": "gpus",
    "requiredgpus": "gpus",
    "run": "command",
    "script_path": "script",
    "snapshots_dir": "checkpoint_dir",
    "timeout": "time_limit",
    "training_set_size": "dataset_size",
}
"""Fields that take the same value under our name."""
_NO_TYPE = "leave it out; launcher: says how processes are started"
_GPU_RANGE = "write gpus: {min: 1, max: 4}"
HINTS: Mapping[str, str] = {
    "custom_dir": "write mounts: [DIR:/custom]",
    "disable_gpu_sharing": "leave it out; a job has its GPUs alone unless it says gpus: {share: true}",
    "estimated_memory": "write gpus: {memory: 6000MiB}",
    "gpu_memory": "write gpus: {memory: 6GiB}",
    "is_single_gpu": "write gpus: 1",
    "jobs": "several jobs are a list of them, or documents with a line --- in between",
    "jobtype": _NO_TYPE,
    "max_gpus": _GPU_RANGE,
    "min_gpus": _GPU_RANGE,
    "port_mapping": "write ports: {NODE_PORT: CONTAINER_PORT}",
    "type": _NO_TYPE,
}
"""Fields whose value has another form here, with the hint for people."""
_LAUNCHERS = {"MPIJob": "launcher: horovod or mpi", "PyTorchJob": "launcher: torchrun", "TFJob": "launcher: per-node"}


def ours(name: str, value: object) -> str | None:
    """What to write instead of a field of another system. None: no known system has a field of this name."""
    if name in SAME_VALUE:
        return f"write {SAME_VALUE[name]}: {_short(value)}"
    return HINTS.get(name)


def kubernetes_object(document: Mapping[str, Any]) -> Problem | None:
    """A Kubernetes object was given in place of a job file: one answer, instead of one for each of its fields."""
    kind = document.get("kind")
    if "apiVersion" not in document or not isinstance(kind, str):
        return None
    how = f" and {_LAUNCHERS[kind]}" if kind in _LAUNCHERS else ""
    fix = f"write name:, command:, gpus: {{min: 1, max: 4}}{how}; a `kubernetes:` part has what only pods need"
    return Problem(path="", what=f"this is a Kubernetes object ({_short(kind)}), not a job file", fix=fix)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
