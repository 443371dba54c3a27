"""What is free in a layout under construction: GPUs (whole and shared), CPUs and memory of each node that takes new
runs.

A ledger: `take` and `give_back` are exact opposites. Nodes are indexed by how many whole GPUs of a type they have free,
so that finding the tightest node that takes a job does not look at the others. Never iterates a set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from swell.core.capacity import Need, cpus_of, fits_beside
from swell.core.ids import JobId
from swell.core.resources import Allocation, Gpu, Node, NodeCondition, Part, Share

Gpus = dict[int, Gpu]


@dataclass(slots=True)
class SharedGpu:
    """A GPU on which only pieces are held."""

    node: str
    gpu: Gpu
    milli: int = 0
    memory_mib: int = 0
    jobs: int = 0

    def takes(self, share: Share, overload_milli: int) -> bool:
        return fits_beside(share, Share(memory_mib=self.memory_mib, milli=self.milli), self.gpu, overload_milli)


@dataclass(slots=True)
class NodeRoom:
    node: Node
    free: dict[str, Gpus] = field(default_factory=dict)  # whole ones, by type
    shared: dict[int, SharedGpu] = field(default_factory=dict)
    cpus: int = 0
    memory_mib: int = 0

    def copy(self) -> NodeRoom:
        """Of a node on which nothing is shared."""
        free = {gpu_type: dict(gpus) for gpu_type, gpus in self.free.items()}
        return NodeRoom(node=self.node, free=free, cpus=self.cpus, memory_mib=self.memory_mib)

    def eligible(self, need: Need) -> list[Gpu]:
        gpus = self.free.get(need.gpu_type, {}).values()
        return [g for g in gpus if need.accepts_gpu(g)] if need.gpu_memory_mib else list(gpus)

    def hosts(self, need: Need, gpus: int) -> bool:
        """There are CPUs and memory for the processes of a job on this number of GPUs, all servers among them."""
        return need.hosted_by(self.cpus, self.memory_mib, gpus)

    def most(self, need: Need) -> int:
        """The largest number of whole GPUs it could give to this job now."""
        if not need.accepts(self.node):
            return 0
        gpus = len(self.free.get(need.gpu_type, ())) if not need.gpu_memory_mib else len(self.eligible(need))
        return need.most(gpus, self.cpus, self.memory_mib)


def open_room(node: Node) -> NodeRoom:
    """The node as if nothing ran on it."""
    room = NodeRoom(node=node, cpus=cpus_of(node), memory_mib=node.memory_mib)
    for gpu in node.usable_gpus():
        room.free.setdefault(gpu.type, {})[gpu.index] = gpu
    return room


class Topology:
    """What does not change from pass to pass as long as the nodes do not: kept by a placer, by identity of `nodes`."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self.nodes = nodes
        self.open = {node.name: open_room(node) for node in nodes if node.schedulable}
        self.usable = {name: {g.index: g for g in room.node.usable_gpus()} for name, room in self.open.items()}
        self.racks = {node.name: node.rack for node in nodes}
        self.leaving = {node.name for node in nodes if node.condition is NodeCondition.DRAINING}
        self.known = {node.name for node in nodes}
        self.steady = self.known - self.leaving
        self.largest: dict[str, int] = {}  # the most usable GPUs of each type on one node
        for room in self.open.values():
            for gpu_type, gpus in room.free.items():
                self.largest[gpu_type] = max(self.largest.get(gpu_type, 0), len(gpus))

        self._rooms: dict[str, tuple[list[Part], NodeRoom]] = {}  # of the last pass: most nodes are as they were

    def room(self, name: str, held: list[Part]) -> NodeRoom:
        """What is free on a node beside runs of whole GPUs that hold these parts of it. Not to be changed."""
        kept = self._rooms.get(name)
        if kept is None or kept[0] != held:
            kept = self._rooms[name] = (held, self._less(self.open[name].copy(), held))
        return kept[1]

    def _less(self, room: NodeRoom, held: list[Part]) -> NodeRoom:
        usable = self.usable[room.node.name]
        for part in held:
            room.cpus -= part.cpus
            room.memory_mib -= part.memory_mib
            for index in part.gpus:
                if index in usable:
                    room.free[usable[index].type].pop(index, None)
        return room

    def fewest_nodes(self, gpus: int, gpu_type: str) -> int:
        """How many nodes this number of GPUs takes at best."""
        return max(1, -(-gpus // max(1, self.largest.get(gpu_type, 1))))


class Room:
    """`busy`: jobs that still hold a GPU that the layout counts as free, because they are stopping or changing."""

    def __init__(self, topology: Topology, overload_milli: int, held: Mapping[str, list[Part]]) -> None:
        """`held`: what runs of whole GPUs that stay hold of each node."""
        self.topology = topology
        self.nodes: dict[str, NodeRoom] = {name: topology.room(name, held.get(name, [])) for name in topology.open}
        self._own: dict[str, None] = {}  # nodes on which something was changed; the others' room is the topology's
        self.overload_milli = overload_milli
        self.busy: dict[tuple[str, int], JobId] = {}
        self._usable = topology.usable
        self._index: dict[str, list[dict[str, None]]] | None = None

    def take(self, allocation: Allocation, share: Share | None = None) -> None:
        """`share`: what to account instead of what the allocation says, when more (or less) was measured."""
        for part in allocation.parts:
            room = self._to_change(part.node)
            if room is None:
                continue
            room.cpus -= part.cpus
            room.memory_mib -= part.memory_mib
            for gpu in part.gpus:
                self._take_gpu(room, gpu, share or allocation.share)

    def give_back(self, allocation: Allocation, share: Share | None = None) -> None:
        for part in allocation.parts:
            room = self._to_change(part.node)
            if room is None:
                continue
            room.cpus += part.cpus
            room.memory_mib += part.memory_mib
            for gpu in part.gpus:
                self._give_back_gpu(room, gpu, share or allocation.share)

    def _to_change(self, name: str) -> NodeRoom | None:
        if name not in self._own and name in self.nodes:
            self.nodes[name] = self.nodes[name].copy()
            self._own[name] = None
        return self.nodes.get(name)

    def _take_gpu(self, room: NodeRoom, index: int, share: Share | None) -> None:
        gpu = self._usable[room.node.name].get(index)
        if gpu is None:
            return  # a run keeps it, but no new run gets it: unhealthy, or used by others too
        if share is None:
            self._remove_free(room, gpu)
            return
        held = room.shared.get(index)
        if held is None:
            self._remove_free(room, gpu)
            held = room.shared[index] = SharedGpu(node=room.node.name, gpu=gpu)
        held.milli += share.milli
        held.memory_mib += share.memory_mib
        held.jobs += 1

    def _give_back_gpu(self, room: NodeRoom, index: int, share: Share | None) -> None:
        gpu = self._usable[room.node.name].get(index)
        if gpu is None:
            return
        held = room.shared.get(index)
        if share is not None and held is not None:
            held.milli -= share.milli
            held.memory_mib -= share.memory_mib
            held.jobs -= 1
            if held.jobs:
                return
            del room.shared[index]
        self._add_free(room, gpu)

    def _remove_free(self, room: NodeRoom, gpu: Gpu) -> None:
        free = room.free.get(gpu.type, {})
        before = len(free)
        free.pop(gpu.index, None)
        self._reindex(room.node.name, gpu.type, before, len(free))

    def _add_free(self, room: NodeRoom, gpu: Gpu) -> None:
        free = room.free.setdefault(gpu.type, {})
        before = len(free)
        free[gpu.index] = gpu
        self._reindex(room.node.name, gpu.type, before, len(free))

    def _reindex(self, name: str, gpu_type: str, before: int, after: int) -> None:
        if self._index is None or before == after:
            return
        buckets = self._index[gpu_type]
        buckets[before].pop(name, None)
        buckets[after][name] = None

    def buckets(self, gpu_type: str) -> Sequence[Mapping[str, None]]:
        """Nodes by how many whole GPUs of the type they have free: the k-th mapping holds those with k."""
        if self._index is None:
            self._index = self._build_index()
        return self._index.get(gpu_type, ())

    def _build_index(self) -> dict[str, list[dict[str, None]]]:
        largest = sorted(self.topology.largest.items())
        index: dict[str, list[dict[str, None]]] = {t: [{} for _ in range(k + 1)] for t, k in largest}
        for name, room in self.nodes.items():
            for gpu_type, free in room.free.items():
                index[gpu_type][len(free)][name] = None
        return index

    def shared_gpus(self, gpu_type: str) -> Iterator[SharedGpu]:
        for room in self.nodes.values():
            for shared in room.shared.values():
                if shared.gpu.type == gpu_type:
                    yield shared

    def fragmentation(self, names: Iterable[str] | None = None) -> float:
        """Of these nodes, or all: each that is neither free nor full, by how evenly it is broken up; 0 is best."""
        total = 0.0
        for room in self.nodes.values() if names is None else (self.nodes[name] for name in names):
            gpus = len(room.node.gpus)
            free = sum(map(len, room.free.values()))
            total += free * (gpus - free) / gpus if gpus else 0.0
        return total

    def holds(self, allocation: Allocation) -> bool:
        """Exactly these GPUs, whole, with their CPUs and memory, are free on nodes that take new runs."""
        for part in allocation.parts:
            room = self.nodes.get(part.node)
            if room is None or part.cpus > room.cpus or part.memory_mib > room.memory_mib:
                return False
            free = room.free.get(allocation.gpu_type, {})
            if not all(gpu in free for gpu in part.gpus):
                return False
        return True

    def at_once(self, name: str, need: Need) -> int:
        """How many of a node's GPUs the job could have without waiting for another to leave."""
        gpus = self.nodes[name].eligible(need)
        return sum(1 for g in gpus if self.busy.get((name, g.index), need.job) == need.job) if self.busy else len(gpus)
