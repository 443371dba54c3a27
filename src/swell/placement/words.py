"""Sentences and numbers for people: why a job has no place, and why one was moved."""

from __future__ import annotations

from swell.core.capacity import Need, free_mib, most_together
from swell.core.decision import Detail, Reason, ReasonCode
from swell.core.resources import Allocation
from swell.placement.room import NodeRoom, Room, open_room

GPU_MEMORY = "memory of one GPU (MiB)"


def why_not(room: Room, need: Need) -> Reason:
    """Why this job has no place in this room, with the numbers that show it."""
    accepted = [node for node in room.nodes.values() if need.accepts(node.node)]
    if not accepted:
        return Reason(code=ReasonCode.NODES, detail={"accepts": _accepts(need)} if _accepts(need) else {})
    if need.shared:
        return _no_share(accepted, need)
    if not need.gpus:
        return _no_hosts(accepted, need)
    return _no_gpus(accepted, need)


def _no_gpus(nodes: list[NodeRoom], need: Need) -> Reason:
    typed = [[g for g in n.node.usable_gpus() if g.type == need.gpu_type] for n in nodes]
    if not any(typed):
        return _no_type(need)
    if not any(need.accepts_gpu(g) for gpus in typed for g in gpus):
        return _short_of(GPU_MEMORY, need.gpu_memory_mib, max(free_mib(g) for gpus in typed for g in gpus))
    empty = [open_room(n.node) for n in nodes]
    most = _most(empty, [len(n.eligible(need)) for n in empty], need)
    if most < need.gpus:
        return Reason(code=ReasonCode.SHAPE, detail={"needs": need.gpus, "largest": most})
    if _most(empty, [n.most(need) for n in empty], need) < need.gpus:
        return _no_hosts(empty, need)
    free = [len(n.eligible(need)) for n in nodes]
    if sum(free) < need.gpus:
        return Reason(code=ReasonCode.CAPACITY, detail={"needs": need.gpus, "free": sum(free)})
    if _most(nodes, free, need) >= need.gpus:
        return _no_hosts(nodes, need)
    detail: dict[str, Detail] = {"needs": need.gpus, "free": sum(free), "largest": max(free)}
    return Reason(code=ReasonCode.FRAGMENTED, detail=detail)


def _no_type(need: Need) -> Reason:
    where = _accepts(need)
    accepts = f"{need.gpu_type} on {where}" if where else need.gpu_type
    return Reason(code=ReasonCode.GPU_TYPE, detail={"needs": max(1, need.gpus), "accepts": accepts})


def _accepts(need: Need) -> str:
    """`gpu1 or gpu2 with zone=a that run containers`; empty: any node."""
    labels = ", ".join(f"{key}={value}" for key, value in need.labels)
    traits = [f"with {labels}"] if labels else []
    traits += ["that run containers"] if need.image and not need.pods else []
    named = " or ".join(need.nodes)
    return " ".join([named or "nodes", *traits]) if named or traits else ""


def _short_of(what: str, needs: int, free: int) -> Reason:
    return Reason(code=ReasonCode.MEMORY, detail={"what": what, "needs": needs, "free": max(0, free)})


def _most(nodes: list[NodeRoom], counts: list[int], need: Need) -> int:
    return most_together((room.node for room in nodes), counts, one_node=need.one_node)


def _no_share(nodes: list[NodeRoom], need: Need) -> Reason:
    if not any(g.type == need.gpu_type for n in nodes for g in n.node.usable_gpus()):
        return _no_type(need)
    free = [free_mib(s.gpu) - s.memory_mib for n in nodes for s in n.shared.values()]
    free += [free_mib(g) for n in nodes for g in n.free.get(need.gpu_type, {}).values()]
    most = max(free, default=0)
    if most < need.share_memory_mib:
        return _short_of(GPU_MEMORY, need.share_memory_mib, most)
    if any(n.hosts(need, 0) for n in nodes):
        return Reason(code=ReasonCode.CAPACITY, detail={"needs": 1, "free": 0})
    return _no_hosts(nodes, need)


def _no_hosts(nodes: list[NodeRoom], need: Need) -> Reason:
    """CPUs or memory are missing: the best that one node has free, against what the job needs there."""
    processes = need.processes(need.gpus, need.servers)
    cpus = max((n.cpus for n in nodes), default=0)
    if processes * need.cpus > cpus:
        return _short_of("CPU of one node", processes * need.cpus, cpus)
    memory_mib = max((n.memory_mib for n in nodes), default=0)
    return _short_of("memory of one node (MiB)", processes * need.memory_mib, memory_mib)


COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def count(number: int) -> str:
    return COUNTS[number] if number < len(COUNTS) else str(number)


def moved(before: Allocation, after: Allocation, because: str, cost_s: float) -> str:
    where = f"moved from {', '.join(before.nodes)} to {', '.join(after.nodes)}"
    return f"{where}: {because}, cost {cost_s:.0f} s"


def closer(before: Allocation, after: Allocation, gain: float) -> str:
    now, then = len(before.parts), len(after.parts)
    if then < now:
        nodes = "node" if then == 1 else "nodes"
        return f"{count(then)} {nodes} instead of {count(now)}, est. {gain:+.0%} speed".replace("%", " %")
    return f"est. {gain:+.0%} speed".replace("%", " %")
