"""Caps on what all jobs of one Kubernetes namespace may have together (`Cap`), wherever their pods are. Pure.

The executor of pods reports them with its nodes; `policy.caps` keeps decisions within them, `plan.reconcile` starts
nothing beyond them, and `plan.admit` refuses what may never run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from swell.core.capacity import processes_of
from swell.core.decision import Detail, Reason, ReasonCode
from swell.core.job import JobSpec
from swell.core.pods import runs_pods
from swell.core.resources import Allocation, Cap, Capped, Node

Amounts = Mapping[Capped, int]
UNITS = {Capped.GPUS: "GPUs", Capped.PODS: "pods", Capped.CPUS: "CPUs", Capped.MEMORY: "MiB of memory"}


def caps_of(nodes: Iterable[Node]) -> tuple[Cap, ...]:
    return tuple(cap for node in nodes for cap in node.caps)


def under(spec: JobSpec, cap: Cap) -> bool:
    """Whether the cap applies to the job. A job without a namespace runs in the daemon's, and caps of other namespaces
    are not read."""
    return spec.kubernetes is not None and spec.kubernetes.namespace in ("", cap.namespace)


def needs_of(spec: JobSpec, n: int, gpus_per_node: int) -> Amounts:
    """What a job with n GPUs needs before its nodes are known: on as few nodes as possible."""
    gpus = 0 if spec.cpu_only else n
    processes = processes_of(spec, n)
    return {
        Capped.GPUS: gpus,
        Capped.PODS: max(1, -(-gpus // max(1, gpus_per_node))),
        Capped.CPUS: processes * spec.cpus,
        Capped.MEMORY: processes * spec.memory_mib,
    }


def largest_node(nodes: Iterable[Node]) -> int:
    """GPUs of the largest node that runs pods."""
    return max((len(node.gpus) for node in nodes if runs_pods(node)), default=0)


def held_by(allocation: Allocation) -> Amounts:
    parts = allocation.parts
    return {
        Capped.GPUS: allocation.gpus,
        Capped.PODS: len(parts),
        Capped.CPUS: sum(part.cpus for part in parts),
        Capped.MEMORY: sum(part.memory_mib for part in parts),
    }


class Left:
    """A ledger of what is left of each cap."""

    def __init__(self, caps: Iterable[Cap]) -> None:
        self._caps = tuple(caps)
        self._left = [cap.most for cap in self._caps]

    def concerns(self, spec: JobSpec) -> bool:
        return any(under(spec, cap) for cap in self._caps)

    def short(self, spec: JobSpec, needs: Amounts) -> Reason | None:
        """The reason if a cap does not leave this much; None: all do. An amount of 0 is always left."""
        for cap, left in zip(self._caps, self._left, strict=True):
            if needs[cap.what] > max(0, left) and under(spec, cap):
                return beyond(cap, needs[cap.what], max(0, left))
        return None

    def take(self, spec: JobSpec, needs: Amounts, sign: int = 1) -> None:
        for index, cap in enumerate(self._caps):
            if under(spec, cap):
                self._left[index] -= sign * needs[cap.what]

    def caps(self) -> tuple[Cap, ...]:
        return tuple(replace(cap, most=max(0, left)) for cap, left in zip(self._caps, self._left, strict=True))


def beyond(cap: Cap, needs: int, left: int) -> Reason:
    detail: dict[str, Detail] = {"why": cap.why, "needs": needs, "left": left, "what": UNITS[cap.what]}
    return Reason(code=ReasonCode.NAMESPACE, detail=detail)
