"""Places the workers of an MPIJob on the planned nodes. Pure.

All workers of an MPIJob are made from one template. To have each on the node that Swell has planned, the template names
one node at a time: the workers of the first node are made, then the template names the next node, and so on (`stage`).
The operator makes missing workers and deletes those with the highest numbers, so a worker keeps its number and node in
a resize if possible (`reassigned`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from swell.executors.kubernetes.objects import Pod
from swell.executors.verdict import SERVER, Member, Roster

LAUNCHER = 0
"""Its rank. Worker i has rank i + 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A planned worker: its node, its slots there, and the requests of its container."""

    node: str
    gpus: tuple[int, ...]
    resources: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> tuple[str, int]:
        """Hosts of one kind are made from the same template."""
        return self.node, len(self.gpus)

    def matches(self, pod: Pod) -> bool:
        return (pod.host, pod.uses.gpus) == self.kind


@dataclass(slots=True)
class MpiRun:
    """The state of a run as MPIJob besides its roster. `launcher`: the uid of the one pod that may start it."""

    hosts: tuple[Host, ...]
    launcher: str = ""
    left: set[str] = field(default_factory=set)  # uids of workers that were resized away: how they end means nothing
    seen: set[int] = field(default_factory=set)  # ranks whose pod was there
    waits_s: float | None = None  # monotonic, since when the operator owes a pod

    def to_json(self) -> dict[str, Any]:
        hosts = [{"node": h.node, "gpus": list(h.gpus), "resources": h.resources} for h in self.hosts]
        return {"hosts": hosts, "launcher": self.launcher, "left": sorted(self.left)}

    def without(self, pod: Pod) -> bool:
        """Whether a pod does not belong to the run: a worker that was resized away, or a second launcher, which
        Kubernetes makes when somebody deletes the first."""
        if pod.rank == LAUNCHER:
            return pod.uid != self.launcher
        return pod.uid in self.left or pod.rank > len(self.hosts)


def mpi_run_from_json(data: Mapping[str, Any]) -> MpiRun:
    hosts = tuple(Host(node=h["node"], gpus=tuple(h["gpus"]), resources=h["resources"]) for h in data["hosts"])
    return MpiRun(hosts=hosts, launcher=data["launcher"], left=set(data["left"]))


def roster_with(roster: Roster, hosts: Sequence[Host]) -> Roster:
    """The roster of the launcher, which decides the end of the run, and the hosts, which serve it."""
    launcher = replace(roster.members[0], gpus=())
    workers = (Member(rank=index + 1, node=host.node, role=SERVER, gpus=host.gpus) for index, host in enumerate(hosts))
    return replace(roster, members=(launcher, *workers))


def reassigned(now: Sequence[Host], wanted: Sequence[Host]) -> tuple[Host, ...]:
    """The wanted hosts in an order that leaves as many workers as possible where they are."""
    left = list(wanted)
    kept = [_taken(left, host) for host in now[: len(wanted)]]
    kept += [None] * (len(wanted) - len(kept))
    return tuple(host if host is not None else left.pop(0) for host in kept)


def _taken(left: list[Host], like: Host) -> Host | None:
    """Takes a host of the same node: with the same slots if possible, else with others."""
    same = [host for host in left if host.kind == like.kind]
    found = next((host for host in same if host.gpus == like.gpus), same[0] if same else None)
    if found is not None:
        left.remove(found)
    return found


def goes_on(now: Sequence[Host], then: Sequence[Host], launcher: str) -> bool:
    """Whether a run can be resized in place: its launcher stays on its node, and a worker that has its state stays."""
    stays = any(before.kind == after.kind for before, after in zip(now, then, strict=False))
    return stays and launcher in {host.node for host in then}


def moved_ranks(now: Sequence[Host], then: Sequence[Host]) -> set[int]:
    """Workers that do not stay where they are."""
    return {i + 1 for i, host in enumerate(now) if i >= len(then) or host.kind != then[i].kind}


def stage(hosts: Sequence[Host], workers: Mapping[int, Pod]) -> tuple[int, Host]:
    """The number of workers to request now, and the host for the template: the first that is missing or elsewhere.
    Hosts of the same kind after it come with it. `workers` by index."""
    for index, host in enumerate(hosts):
        if index not in workers or not host.matches(workers[index]):
            alike = next((n for n in range(index, len(hosts)) if hosts[n].kind != host.kind), len(hosts))
            there = max((n + 1 for n in workers if n < len(hosts)), default=0)
            return max(alike, there), host
    return len(hosts), hosts[-1]


def misplaced(hosts: Sequence[Host], workers: Mapping[int, Pod]) -> Pod | None:
    """The first worker on a wrong node; the caller deletes it, and the operator makes it again from the template."""
    wrong = (pod for index, pod in sorted(workers.items()) if index < len(hosts) and not hosts[index].matches(pod))
    return next(wrong, None)
