"""Consolidated best fit, the default: jobs keep their place; a new one goes to as few nodes as possible.

Jobs that hold exactly what they were granted stay. Each other job takes, in order of precedence: GPUs it holds already,
then the node with the least room that still takes it whole, else the roomiest nodes one after the other.
O(jobs × nodes).
"""

from __future__ import annotations

from collections.abc import Sequence

from swell.core.decision import Layout, Reason, ReasonCode
from swell.core.ids import JobId
from swell.core.resources import Allocation, Part
from swell.core.snapshot import Snapshot
from swell.ports import Placed, Random


class Consolidated:
    name = "consolidated"

    def place(self, snapshot: Snapshot, wanted: Sequence[Placed], rng: Random) -> Layout:
        free = {node.name: {g.index: g.type for g in node.usable_gpus()} for node in snapshot.nodes if node.schedulable}
        allocations: dict[JobId, Allocation] = {}
        unplaced: dict[JobId, Reason] = {}
        moving: list[Placed] = []
        for placed in wanted:
            held = placed.view.allocation
            if held is not None and held.gpus == placed.grant.n and held.gpu_type == placed.grant.gpu_type:
                allocations[placed.view.id] = held
                for part in held.parts:
                    for gpu in part.gpus:
                        free.get(part.node, {}).pop(gpu, None)
            else:
                moving.append(placed)
        for placed in moving:
            allocation = _fit(placed, free)
            if allocation is None:
                unplaced[placed.view.id] = Reason(code=ReasonCode.FRAGMENTED)
            else:
                allocations[placed.view.id] = allocation
        return Layout(allocations=allocations, unplaced=unplaced)


def _fit(placed: Placed, free: dict[str, dict[int, str]]) -> Allocation | None:
    grant, job = placed.grant, placed.view
    if job.gpu_milli == 0:
        node = min(free, default=None)
        return Allocation(parts=(Part(node=node),)) if node is not None else None
    room = {node: [g for g, t in gpus.items() if t == grant.gpu_type] for node, gpus in sorted(free.items())}
    if sum(map(len, room.values())) < grant.n:
        return None
    held = set(job.allocation.nodes) if job.allocation else set(job.last_nodes)
    whole = [n for n, gpus in room.items() if len(gpus) >= grant.n]
    if whole:
        order = [min(whole, key=lambda n: (n not in held, len(room[n]), n))]
    else:
        order = sorted(room, key=lambda n: (-len(room[n]), n))
    parts: list[Part] = []
    left = grant.n
    for node in order:
        gpus = tuple(sorted(room[node])[:left])
        if gpus:
            parts.append(Part(node=node, gpus=gpus))
            left -= len(gpus)
            for gpu in gpus:
                del free[node][gpu]
        if not left:
            break
    return Allocation(parts=tuple(parts), gpu_type=grant.gpu_type)
