"""The state of a run in the Kubernetes executor, and its files on the daemon's disk:

    <directory>/<run>/run.json    its roster, the nodes of its pods, how each worker ended
    <directory>/<run>/<rank>/log

A worker's end is on disk before its pod is released, so that a later daemon finds one or the other.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from swell.core.events import ExitReason
from swell.core.ids import RunId
from swell.executors.kubernetes.mpi_run import MpiRun, mpi_run_from_json
from swell.executors.kubernetes.verdict import lost
from swell.executors.verdict import End, Roster, roster_from_json
from swell.shim.files import read_json, write_whole


@dataclass(slots=True)
class Tracked:
    roster: Roster
    namespace: str
    launched: bool = False  # all its pods were created, or will never be
    stop: bool = False  # it was asked to stop: nothing of it starts any more
    ends: dict[int, End] = field(default_factory=dict)  # by rank
    failed: End | None = None  # why it could not be started, which no worker says
    up: set[int] = field(default_factory=set)
    up_s: float | None = None
    lease_s: float = 0.0  # under which it was launched; 0: it may go on without a limit
    leased: set[str] = field(default_factory=set)  # nodes whose pod has asked for its lease
    up_told: bool = False
    epochs: Mapping[str, Any] | None = None
    broken_s: float | None = None  # monotonic, since when its gang is broken
    told_rest: bool = False
    mpi: MpiRun | None = None  # set if it runs as an MPIJob
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # held by who launches, signals or judges it

    @property
    def run(self) -> RunId:
        return self.roster.run

    @property
    def nodes(self) -> tuple[str, ...]:
        """In order of their ranks: one pod each."""
        return tuple(dict.fromkeys(member.node for member in self.roster.members))

    def ranks_on(self, node: str) -> list[int]:
        return [member.rank for member in self.roster.members if member.node == node]

    def obeys_lease(self, node: str, *, heard: bool) -> bool:
        """Whether its pod there certainly ends when its lease expires. A pod that has asked for its lease does; one
        that has not started will ask first. Unless its state is known (`heard`), it may have started without asking (an
        image without python3)."""
        if not self.lease_s or node in self.leased:
            return bool(self.lease_s)
        return heard and not self.up.intersection(self.ranks_on(node))

    @property
    def ended(self) -> bool:
        return all(rank in self.ends for rank in self.roster.ranks)

    def to_json(self) -> dict[str, Any]:
        return {
            "roster": self.roster.to_json(),
            "namespace": self.namespace,
            "launched": self.launched,
            "stop": self.stop,
            "up_s": self.up_s,
            "lease_s": self.lease_s,
            "leased": sorted(self.leased),
            "ends": [_end_to_json(end) for end in self.ends.values()],
            "mpi": self.mpi.to_json() if self.mpi else None,
        }


def slots_held(runs: Iterable[Tracked]) -> dict[str, set[int]]:
    """Slots by node of runs whose pods may not have been seen yet."""
    held: dict[str, set[int]] = {}
    for tracked in runs:
        for member in tracked.roster.members:
            held.setdefault(member.node, set()).update(member.gpus)
    return held


def lease_on(node: str, runs: Iterable[Tracked], lease_s: float, heard: bool) -> float:
    """The lease of a node's runs, after which they have ended; 0 if a run may not obey its lease, or leases are off."""
    here = [tracked for tracked in runs if node in tracked.nodes]
    if not lease_s or not all(tracked.obeys_lease(node, heard=heard) for tracked in here):
        return 0.0
    return max([lease_s, *(tracked.lease_s for tracked in here)])


def _end_to_json(end: End) -> dict[str, Any]:
    return {"rank": end.rank, "reason": end.reason, "at_s": end.at_s, "code": end.code, "message": end.message}


def tracked_from_json(data: Mapping[str, Any]) -> Tracked:
    ends = [End(**{**end, "reason": ExitReason(end["reason"])}) for end in data["ends"]]
    return Tracked(
        roster=roster_from_json(data["roster"]),
        namespace=data["namespace"],
        launched=data["launched"],
        stop=data["stop"],
        up_s=data["up_s"],
        lease_s=data.get("lease_s", 0.0),
        leased=set(data.get("leased", ())),
        ends={end.rank: end for end in ends},
        mpi=mpi_run_from_json(data["mpi"]) if data.get("mpi") else None,
    )


class Notes:
    """Reads and writes run.json. It blocks, so call it in a thread, or only for small files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def of(self, run: RunId) -> Path:
        return self.directory / str(run)

    def save(self, tracked: Tracked) -> None:
        """Durable when it returns."""
        path = self.of(tracked.run)
        path.mkdir(parents=True, exist_ok=True)
        write_whole(str(path), "run.json", json.dumps(tracked.to_json()).encode())

    def load(self, run: RunId) -> Tracked | None:
        data = read_json(str(self.of(run) / "run.json"))
        try:
            return tracked_from_json(data) if data else None
        except (KeyError, ValueError, TypeError):
            return None


def ends_of_missing(tracked: Tracked, ranks: Sequence[int], now_s: float) -> list[End]:
    """The ends of workers whose pods are gone without a noted end."""
    if tracked.failed is not None:
        return [replace(tracked.failed, rank=rank, at_s=now_s) for rank in ranks]
    if tracked.stop or tracked.told_rest:
        return lost(ranks, "stopped before it started", now_s, ExitReason.STOPPED)
    return lost(ranks, "its pod was removed from the cluster by force; no exit code is known", now_s)
