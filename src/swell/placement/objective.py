"""What a layout is worth: the one measure that every placer improves and every comparison uses.

The unit is GPUs of useful work. A placed job is worth its GPUs, times its speed there relative to its speed on as few
nodes as possible. A running job that is moved loses a stop and a start, weighed against its remaining time; a job that
has to be restarted anyhow (its size changes) does not lose it twice. A job without a place is worth nothing. Small
corrections order what is otherwise equal: fewer nodes, fewer switches, fewer moved workers, fewer broken-up nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from swell.core.decision import Layout
from swell.core.ids import JobId
from swell.core.resources import GPU_MILLI, Allocation
from swell.core.snapshot import JobView, Snapshot
from swell.placement.room import Topology
from swell.ports import Placed

CAUTION = 2.0
"""A move must bring back this many times what it costs: remaining times and speeds are estimates."""
CPU_ONLY_WORTH = 0.1
PER_NODE = 0.005
"""Part of its worth that a job loses for each node beyond the first, where it is newly put."""
PER_SWITCH = 0.02
PER_MOVED_WORKER = 0.001
PER_FRAGMENT = 0.0001
"""Weighs less than one moved worker: less fragmentation alone never moves a job."""


class Worth:
    """Worth of single placements in one snapshot."""

    def __init__(self, now_s: float, topology: Topology) -> None:
        self._now_s = now_s
        self._topology = topology

    def at_best(self, placed: Placed) -> float:
        """No place can be worth more to this job."""
        view = placed.view
        if not view.gpu_milli:
            return CPU_ONLY_WORTH
        return placed.grant.n * view.gpu_milli / GPU_MILLI

    def of(self, placed: Placed, allocation: Allocation) -> float:
        view = placed.view
        weight = self.at_best(placed)
        if allocation.gpus < placed.grant.n and view.gpu_milli:
            weight *= allocation.gpus / placed.grant.n
        if allocation == view.allocation:
            return weight * self._speed(view, allocation)
        moved = moved_workers(view.allocation, allocation)
        loss = PER_NODE * (len(allocation.parts) - 1) + PER_SWITCH * (self._switches(allocation) - 1)
        kept = weight * self._speed(view, allocation) * self.restart_factor(placed, allocation)
        return max(0.0, kept * (1 - min(0.5, loss)) - PER_MOVED_WORKER * moved)

    def _speed(self, view: JobView, allocation: Allocation) -> float:
        """Relative to the same GPUs on as few nodes as possible."""
        nodes, gpus = len(allocation.parts), allocation.gpus
        fewest = self._topology.fewest_nodes(gpus, allocation.gpu_type)
        if nodes <= fewest:
            return 1.0
        best = view.speed.rate(gpus, fewest, allocation.gpu_type)
        return min(1.0, view.speed.rate(gpus, nodes, allocation.gpu_type) / best) if best > 0 else 1.0

    def restart_factor(self, placed: Placed, allocation: Allocation) -> float:
        """Effective speed after a restart, relative to no restart."""
        if not is_move(placed, allocation):
            return 1.0
        view = placed.view
        rate = view.speed.rate(max(1, allocation.gpus), len(allocation.parts), allocation.gpu_type)
        run_s = view.remaining_s(self._now_s) / max(rate, 1e-9)
        return run_s / (run_s + CAUTION * view.stop_cost_s(self._now_s))

    def _switches(self, allocation: Allocation) -> int:
        return len(dict.fromkeys(self._topology.racks.get(part.node, "") for part in allocation.parts))


def is_move(placed: Placed, allocation: Allocation) -> bool:
    """A running job that keeps its size and has to stop only to be somewhere else."""
    view = placed.view
    held = view.allocation
    if held is None or view.stopping or held == allocation:
        return False
    return view.held_n == placed.grant.n and held.gpu_type == allocation.gpu_type


def speed_gain(view: JobView, held: Allocation, nodes: int) -> float:
    """How much faster the job would be on this number of nodes with the GPUs it has: 0.18 is 18 %."""
    gpus = max(1, held.gpus)
    now = view.speed.rate(gpus, len(held.parts), held.gpu_type)
    return view.speed.rate(gpus, nodes, held.gpu_type) / now - 1 if now > 0 else 0.0


def moved_workers(held: Allocation | None, allocation: Allocation) -> int:
    """Workers (one per GPU, or the one of a job without whole GPUs) that are on another node afterwards."""
    if held is None:
        return 0
    before = {part.node: max(1, len(part.gpus)) for part in held.parts}
    after = {part.node: max(1, len(part.gpus)) for part in allocation.parts}
    stay = sum(min(count, after.get(node, 0)) for node, count in before.items())
    return min(sum(before.values()), sum(after.values())) - stay


def fragmentation(snapshot: Snapshot, allocations: Mapping[JobId, Allocation]) -> float:
    """Nodes that are neither free nor full, each by how evenly it is broken up; 0 is best."""
    used: dict[str, int] = {}
    for allocation in allocations.values():
        for part in allocation.parts:
            used[part.node] = used.get(part.node, 0) + len(part.gpus)
    total = 0.0
    for node in snapshot.nodes:
        if node.schedulable and node.gpus:
            gpus = len(node.gpus)
            taken = min(gpus, used.get(node.name, 0))
            total += taken * (gpus - taken) / gpus
    return total


def value(snapshot: Snapshot, wanted: Sequence[Placed], layout: Layout) -> float:
    """The objective: larger is better."""
    worth = Worth(snapshot.now_s, Topology(snapshot.nodes))
    placed = [(p, layout.allocations[p.view.id]) for p in wanted if p.view.id in layout.allocations]
    broken = fragmentation(snapshot, layout.allocations)
    return sum(worth.of(p, allocation) for p, allocation in placed) - PER_FRAGMENT * broken
