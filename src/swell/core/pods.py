"""What a job that runs as pods may ask for, decided at submit. Pure. Called by `plan.admit`.

A job says that it runs as pods with the section `kubernetes:`, even an empty one. It then runs on nodes of a Kubernetes
cluster and nowhere else, others never do: so no run spans the two.
"""

from __future__ import annotations

from swell.core.containers import UNCONTAINED
from swell.core.errors import Infeasible
from swell.core.job import JobSpec
from swell.core.resources import Node

PODS = "kubernetes"
"""The executor of nodes that run pods."""


def runs_pods(node: Node) -> bool:
    return node.executor == PODS


def check_pods(spec: JobSpec) -> None:
    """Raise Infeasible, with what to do, for what no pod can be."""
    if spec.kubernetes is None:
        return
    if not spec.image:
        raise Infeasible("a pod needs an image: set `image:` in the job file to one that has your training's packages")
    if spec.mounts or spec.ports:
        raise Infeasible("pods have no `mounts:` or `ports:`; name volumes under `kubernetes: volumes:` instead")
    if spec.gpus.share:
        raise Infeasible("pods cannot share a GPU: set `share: false`, or let the cluster offer slices as GPUs (MIG)")
    if spec.kubernetes.worker_command and not runs_as_mpijob(spec):
        raise Infeasible(
            f"worker_command is what the hosts of launcher mpi or horovod run, and the launcher is {spec.launcher}; "
            "leave it out, or set `launcher:`"
        )


def runs_as_mpijob(spec: JobSpec) -> bool:
    """Its launcher starts processes on other hosts by itself: pods that an operator makes for it."""
    return spec.kubernetes is not None and spec.launcher in UNCONTAINED


def no_node_for(spec: JobSpec) -> str:
    """For people: there are only nodes of the other kind."""
    if spec.kubernetes is not None:
        return (
            "it says `kubernetes:` and there is no node of a Kubernetes cluster; `swell up --kubernetes-context NAME`"
        )
    return "there are nodes of a Kubernetes cluster only: add `kubernetes: {}` and an `image:` to the job file"
