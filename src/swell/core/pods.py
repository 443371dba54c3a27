"""Checks at submit what a job that runs as pods requests. Pure. Called by `plan.admit`.

A job with a section `kubernetes:`, even an empty one, runs as pods: only on nodes of a Kubernetes cluster. Other jobs
never run there, so no run spans both.
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
    """Raise Infeasible for a spec that cannot run as pods. The message says what to do."""
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
    """Whether it runs as an MPIJob: its launcher starts processes on other hosts, which are pods that an operator
    makes."""
    return spec.kubernetes is not None and spec.launcher in UNCONTAINED


def no_node_for(spec: JobSpec) -> str:
    """For people: the cluster has only nodes of the other kind."""
    if spec.kubernetes is not None:
        return (
            "it says `kubernetes:` and there is no node of a Kubernetes cluster; `swell up --kubernetes-context NAME`"
        )
    return "there are nodes of a Kubernetes cluster only: add `kubernetes: {}` and an `image:` to the job file"
