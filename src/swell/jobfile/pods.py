"""Section `kubernetes:` of the job file: what a job says about its pods. Only names of secrets, never their values."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from swell.core.job import PodOptions, PodVolume
from swell.jobfile import shorthand

Name = Annotated[str, Field(max_length=253, pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$")]
Directory = Annotated[str, Field(max_length=4096, pattern=r"^/")]
_SOURCES = ("claim", "config_map", "secret", "host_path")
_RESERVED = ("restartPolicy", "affinity", "nodeName", "terminationGracePeriodSeconds", "nodeSelector")
"""What Swell decides about a pod."""
_INSTEAD = {
    "nodeSelector": "; use `node_labels:`, which nodes are chosen by",
    "affinity": "; use `nodes:` or `node_labels:`",
    "nodeName": "; use `nodes:`",
    "terminationGracePeriodSeconds": "; use `grace:`",
}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class PodVolumeModel(_Strict):
    """A directory of the pods. Write exactly one of claim, config_map, secret and host_path."""

    mount: Annotated[Directory, Field(description="Where the containers see it.")]
    claim: Annotated[Name, Field(description="A PersistentVolumeClaim of the namespace.")] = ""
    config_map: Annotated[Name, Field(description="A ConfigMap, one file per key.")] = ""
    secret: Annotated[Name, Field(description="A Secret, one file per key.")] = ""
    host_path: Annotated[str, Field(max_length=4096, description="A directory of the nodes.")] = ""
    read_only: Annotated[bool, Field(strict=True)] = False

    @model_validator(mode="after")
    def _check(self) -> PodVolumeModel:
        given = [name for name in _SOURCES if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(f"a volume comes from one of {', '.join(_SOURCES)}; here are {len(given)} of them")
        return self


class PodOptionsModel(_Strict):
    """About pods, for nodes of a Kubernetes cluster. A job with this section, even empty, runs as pods only."""

    namespace: Annotated[Name, Field(description="Of its pods. Left out: the daemon's.")] = ""
    service_account: Annotated[Name, Field(description="What its pods may do in the cluster. Left out: nothing.")] = ""
    priority_class: Annotated[Name, Field(description="Of its pods, towards pods that are not Swell's.")] = ""
    pull_secrets: Annotated[tuple[Name, ...], Field(description="Names of Secrets to pull the image with.")] = ()
    volumes: Annotated[tuple[PodVolumeModel, ...], Field(description="Directories that the pods see.")] = ()
    overrides: Annotated[
        dict[str, Any],
        Field(default_factory=dict, description="Merged into the pods' `spec` last: securityContext, hostNetwork, …"),
    ]
    worker_command: Annotated[
        tuple[str, ...],
        BeforeValidator(shorthand.command, json_schema_input_type=str | list[str]),
        Field(description="Launchers mpi and horovod: what their hosts run. Left out: `/usr/sbin/sshd -De`."),
    ] = ()

    @model_validator(mode="after")
    def _check(self) -> PodOptionsModel:
        taken = [name for name in _RESERVED if name in self.overrides]
        if taken:
            instead = "".join(_INSTEAD.get(name, "") for name in taken)
            raise ValueError(f"{' and '.join(taken)} of a pod is decided by Swell; leave it out of overrides{instead}")
        return self

    def options(self) -> PodOptions:
        return PodOptions(
            namespace=self.namespace,
            service_account=self.service_account,
            priority_class=self.priority_class,
            pull_secrets=self.pull_secrets,
            volumes=tuple(PodVolume(**volume.model_dump()) for volume in self.volumes),
            overrides=self.overrides,
            worker_command=self.worker_command,
        )
