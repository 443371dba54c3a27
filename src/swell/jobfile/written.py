"""Writes a job spec as the job file that makes it again, so that people can submit it once more. The API's views call
it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import msgspec

from swell.core.job import GpuRequest, JobSpec, PodOptions, PodVolume, Roles
from swell.jobfile.shorthand import SHELL

OF_ONE_SUBMISSION = frozenset(
    {
        *("user", "deadline_s", "depends_on", "after_any", "after_failure"),
        *("array_index", "array_parameters"),  # its command and name have their values in place already
    }
)
"""Fields that belong to one submission and are not copied to the next: user, deadline, dependencies, array element."""

_NAMES = {
    "memory_mib": "memory",
    "node_labels": "labels",
    "progress_patterns": "progress",
    "backoff_s": "backoff",
    "time_limit_s": "time_limit",
    "grace_s": "grace",
}
"""Where the job file has another name for a field of the spec."""


def document_of(spec: JobSpec) -> dict[str, Any]:
    """The job file, without fields at their default and without values of secrets. The names of secrets are in it, so a
    submission without their values is refused."""
    usual = JobSpec(name="", command=())
    found: dict[str, Any] = {}
    for field in fields(JobSpec):
        value = getattr(spec, field.name)
        if field.name in OF_ONE_SUBMISSION or value == getattr(usual, field.name):
            continue
        write = _WRITERS.get(field.name)
        found.update(write(spec) if write else {_NAMES.get(field.name, field.name): msgspec.to_builtins(value)})
    return found


def _command(command: tuple[str, ...]) -> str | list[str]:
    return command[2] if command[:2] == SHELL and len(command) == 3 else list(command)


def _gpus(gpus: GpuRequest) -> int | dict[str, Any]:
    if gpus == GpuRequest(min=gpus.max, max=gpus.max):
        return gpus.max
    sizes = {"sizes": list(gpus.allowed)} if gpus.allowed else {}
    more = {
        "start": gpus.start,
        "types": list(gpus.types),
        "prefer": list(gpus.prefer),
        "exclude": list(gpus.exclude),
        "memory": gpus.memory_mib,
        "share": gpus.share,
        "utilisation": gpus.utilisation_milli / 1000,
    }
    return {"min": gpus.min, "max": gpus.max, **sizes, **{name: value for name, value in more.items() if value}}


def _env(spec: JobSpec) -> dict[str, Any]:
    shown = {name: value for name, value in spec.env.items() if name not in spec.secrets}
    return {"env": shown} if shown else {}


def _roles(roles: Roles) -> dict[str, Any]:
    command = {"command": list(roles.server_command)} if roles.server_command else {}
    return {"servers": roles.servers, **command}


def _pods(pods: PodOptions) -> dict[str, Any]:
    volumes = [_unlike(PodVolume(mount=""), volume) for volume in pods.volumes]
    return {**_unlike(PodOptions(), pods), **({"volumes": volumes} if volumes else {})}


def _unlike(usual: object, value: object) -> dict[str, Any]:
    before, after = msgspec.to_builtins(usual), msgspec.to_builtins(value)
    return {name: one for name, one in after.items() if one != before[name]}


_WRITERS: Mapping[str, Callable[[JobSpec], dict[str, Any]]] = {
    "command": lambda spec: {"command": _command(spec.command)},
    "gpus": lambda spec: {"gpus": _gpus(spec.gpus)},
    "env": _env,
    "roles": lambda spec: {"roles": _roles(spec.roles)} if spec.roles else {},
    "kubernetes": lambda spec: {"kubernetes": _pods(spec.kubernetes)} if spec.kubernetes else {},
    "epochs": lambda spec: {f"{spec.unit}s": spec.epochs},
    "unit": lambda _: {},  # the name of the field says it
    "estimated_s": lambda spec: {"estimated_hours": spec.estimated_s / 3600},
}
