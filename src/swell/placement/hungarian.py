"""Repack from scratch, then name the nodes so that as many workers as possible stay where they are.

1. Jobs that may move are packed by best fit decreasing into the room that the others leave: nodes as if anonymous.
2. Nodes that are alike (GPUs, labels, rack, what is left on them) may swap their content. Which swap keeps the most
   workers in place is an assignment problem: overlap of each content with each node, solved by Kuhn–Munkres
   (scipy's linear_sum_assignment), O(nodes³) within each kind of node.
3. The repacked layout is taken only if it is worth more than what `consolidated` would do, moves paid for and within
   the limit of moves per pass; else nothing is repacked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from swell.core.capacity import kind_of
from swell.core.decision import Layout
from swell.core.errors import SwellError
from swell.core.ids import JobId
from swell.core.resources import Allocation
from swell.core.snapshot import Snapshot
from swell.placement.arrange import Arrangement
from swell.placement.branch_and_bound import movable
from swell.placement.consolidated import Consolidated
from swell.placement.fit import fit_whole, on_nodes, split
from swell.placement.objective import PER_FRAGMENT, is_move
from swell.placement.search import explain
from swell.ports import Placed, Random

Counts = dict[JobId, dict[str, int]]
"""How many GPUs of each node a job has."""
Overlap = npt.NDArray[np.int64]


class Hungarian:
    name = "hungarian"

    def __init__(self) -> None:
        self._start = Consolidated()

    def place(self, snapshot: Snapshot, wanted: Sequence[Placed], rng: Random) -> Layout:
        return self._start.improved(snapshot, wanted, self._search)

    def _search(self, arrangement: Arrangement) -> None:
        scope = [p for p in movable(arrangement) if p.view.id in arrangement.places]
        before = {p.view.id: arrangement.places[p.view.id] for p in scope}
        worth = total(arrangement)
        if self._repacked(arrangement, scope) and total(arrangement) > worth + 1e-9:
            explain(arrangement, scope, None)
        else:
            restore(arrangement, scope, before)

    def _repacked(self, arrangement: Arrangement, scope: Sequence[Placed]) -> bool:
        """Put everything where the repacking has it; False if that is impossible or moves too many."""
        packed = repack(arrangement, scope)
        if packed is None:
            return False
        after = concrete(arrangement, scope, rename(packed, relabelled(arrangement, scope, packed)))
        if after is None:
            return False
        return sum(is_move(p, after[p.view.id]) for p in scope) <= arrangement.snapshot.options.max_moves


def total(arrangement: Arrangement) -> float:
    worth = sum(arrangement.worth.of(arrangement.wanted[job], place) for job, place in arrangement.places.items())
    return worth - PER_FRAGMENT * arrangement.room.fragmentation()


def clear(arrangement: Arrangement, scope: Sequence[Placed]) -> None:
    for placed in scope:
        if placed.view.id in arrangement.places:
            arrangement.lift(placed)


def restore(arrangement: Arrangement, scope: Sequence[Placed], places: Mapping[JobId, Allocation]) -> None:
    clear(arrangement, scope)
    for placed in scope:
        arrangement.put(placed, places[placed.view.id])


def repack(arrangement: Arrangement, scope: Sequence[Placed]) -> Counts | None:
    """Best fit decreasing, without regard to where jobs are now. Leaves the scope lifted. None: a job found no
    place."""
    clear(arrangement, scope)
    packed: Counts = {}
    room = arrangement.room
    for placed in sorted(scope, key=lambda p: (-p.grant.n, p.view.id)):
        need = arrangement.need(placed)
        node = fit_whole(room, need)
        counts = ((node, need.gpus),) if node else (None if need.one_node else split(room, need))
        if counts is None:
            break
        arrangement.put(placed, on_nodes(room, need, counts, placed.view))
        packed[placed.view.id] = dict(counts)
    clear(arrangement, scope)
    return packed if len(packed) == len(scope) else None


def relabelled(arrangement: Arrangement, scope: Sequence[Placed], packed: Counts) -> dict[str, str]:
    """For each node of the packing, the node that gets its content: the assignment that keeps the most workers."""
    names: dict[str, str] = {}
    for alike in _kinds(arrangement):
        for row, column in enumerate(_assign(_overlap(scope, packed, alike))):
            names[alike[row]] = alike[column]
    return names


def _counts(allocation: Allocation) -> dict[str, int]:
    return {part.node: len(part.gpus) for part in allocation.parts}


def _overlap(scope: Sequence[Placed], packed: Counts, alike: Sequence[str]) -> Overlap:
    """Workers that stay if the content of one node (row) is put on another (column)."""
    at = {name: index for index, name in enumerate(alike)}
    overlap: Overlap = np.zeros((len(alike), len(alike)), dtype=np.int64)
    for placed in scope:
        held = _counts(placed.view.allocation) if placed.view.allocation else {}
        for content, k in packed[placed.view.id].items():
            for node, had in held.items():
                if content in at and node in at:
                    overlap[at[content], at[node]] += min(k, had)
    return overlap


def _kinds(arrangement: Arrangement) -> list[list[str]]:
    """Nodes whose contents may be swapped: of one kind, with the same GPUs, CPUs and memory left on them."""
    kinds: dict[tuple[object, ...], list[str]] = {}
    for name, room in arrangement.room.nodes.items():
        gpus = tuple(sorted((g.type, g.memory_mib) for gpus in room.free.values() for g in gpus.values()))
        kind = (gpus, kind_of(room.node, arrangement.named), room.cpus, room.memory_mib)
        kinds.setdefault(kind, []).append(name)
    return list(kinds.values())


def _assign(overlap: Overlap) -> list[int]:
    """For each row its column, so that the sum is largest."""
    if len(overlap) == 1:
        return [0]
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise SwellError("the placer hungarian needs scipy; install it with: pip install 'swell[solvers]'") from error
    _, columns = linear_sum_assignment(overlap, maximize=True)
    return [int(column) for column in columns]


def rename(packed: Counts, names: Mapping[str, str]) -> Counts:
    return {job: {names[node]: k for node, k in counts.items()} for job, counts in packed.items()}


def concrete(arrangement: Arrangement, scope: Sequence[Placed], counts: Counts) -> dict[JobId, Allocation] | None:
    """Put each job on its number of GPUs of each node; first those that stay as they are. None: no room after all."""
    places: dict[JobId, Allocation] = {}
    for placed in sorted(scope, key=lambda p: not _stays(p, counts[p.view.id])):
        need, held = arrangement.need(placed), placed.view.allocation
        wanted = counts[placed.view.id]
        if any(arrangement.room.nodes[node].most(need) < k for node, k in wanted.items()):
            return None
        if held is not None and _stays(placed, wanted) and arrangement.room.holds(held):
            allocation = held
        else:
            allocation = on_nodes(arrangement.room, need, tuple(wanted.items()), placed.view)
        arrangement.put(placed, allocation)
        places[placed.view.id] = allocation
    return places


def _stays(placed: Placed, wanted: Mapping[str, int]) -> bool:
    held = placed.view.allocation
    return held is not None and _counts(held) == wanted and held.gpu_type == placed.grant.gpu_type
