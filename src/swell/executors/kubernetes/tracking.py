"""What the Kubernetes executor knows of a run that is not over, and what it keeps of each on the daemon's disk:

    <directory>/<run>/run.json    who belongs to it, where its pods are, how each worker ended
    <directory>/<run>/<rank>/log

A worker's end is on disk before its pod is let go, so that any later daemon finds one or the other.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swell.core.events import ExitReason
from swell.core.ids import RunId
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
    up_told: bool = False
    epochs: Mapping[str, Any] | None = None
    broken_s: float | None = None  # monotonic, since when its gang is broken
    told_rest: bool = False
    asked_s: float = 0.0  # monotonic, when its pods were created
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
            "ends": [_end_to_json(end) for end in self.ends.values()],
        }


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
        ends={end.rank: end for end in ends},
    )


class Notes:
    """Blocks: called in a thread, or where a few hundred bytes do not matter."""

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
