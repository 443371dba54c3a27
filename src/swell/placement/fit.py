"""Where one job fits in the room there is: the tightest node that takes it whole, else as few nodes as possible.

`Strategy` is the one thing in which the simple placers differ: in which order nodes that take a job whole are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from swell.core.capacity import Need, Realm, realm_of
from swell.core.resources import Allocation, Gpu, Part
from swell.core.snapshot import JobView
from swell.placement.room import NodeRoom, Room

Strategy = Callable[[Room, Need], Iterator[str]]
"""Names of nodes to try for a job, best first; those that cannot take it are passed over."""


def tightest_first(room: Room, need: Need) -> Iterator[str]:
    """Nodes with the fewest free GPUs that are enough: large holes stay whole for large jobs."""
    for bucket in list(room.buckets(need.gpu_type))[need.gpus :]:
        yield from bucket


def roomiest_first(room: Room, need: Need) -> Iterator[str]:
    for bucket in reversed(list(room.buckets(need.gpu_type))[need.gpus :]):
        yield from bucket


def in_turn(room: Room, need: Need) -> Iterator[str]:
    """All nodes by name, beginning further on with each job."""
    names = list(room.nodes)
    start = need.job % len(names) if names else 0
    return iter(names[start:] + names[:start])


def fit(room: Room, need: Need, view: JobView, strategy: Strategy = tightest_first) -> Allocation | None:
    """Where to put this job, or None. Takes nothing."""
    if need.shared:
        return _fit_share(room, need, view, strategy)
    if not need.gpus:
        return _fit_cpu(room, need, view, strategy)
    home = homes(view)
    node = fit_whole(room, need, home, strategy)
    if node is not None:
        return on_nodes(room, need, ((node, need.gpus),), view)
    counts = None if need.one_node else split(room, need, home)
    return on_nodes(room, need, counts, view) if counts else None


def homes(view: JobView) -> tuple[str, ...]:
    """Nodes where it runs or ran last: its data and caches may still be there."""
    return view.allocation.nodes if view.allocation else view.last_nodes


def fit_whole(
    room: Room, need: Need, home: tuple[str, ...] = (), strategy: Strategy = tightest_first, without: str = ""
) -> str | None:
    """The best node that takes all of the job's GPUs; one where nobody has to leave first, if there is one."""
    later: str | None = None
    for name in _candidates(room, need, home, strategy):
        if name == without or room.nodes[name].most(need) < need.gpus:
            continue
        if not room.busy or room.at_once(name, need) >= need.gpus:
            return name
        later = later or name
    return later


def _candidates(room: Room, need: Need, home: tuple[str, ...], strategy: Strategy) -> Iterator[str]:
    yield from (name for name in home if name in room.nodes)
    yield from strategy(room, need)


def split(
    room: Room, need: Need, home: tuple[str, ...] = (), nodes: Iterable[str] | None = None
) -> tuple[tuple[str, int], ...] | None:
    """Fewest nodes (of these): of one realm, and within one rack if that takes no more of them."""
    names = _with_gpus(room, need) if nodes is None else nodes
    realms: dict[Realm, dict[str, int]] = {}
    for name in names:
        if most := room.nodes[name].most(need):
            realms.setdefault(realm_of(room.nodes[name].node), {})[name] = most
    ways = [_within_realm(room, realms[realm], need, home) for realm in sorted(realms)]
    return min((way for way in ways if way), key=lambda way: (len(way), way[0][0] not in home), default=None)


def _within_realm(
    room: Room, free: dict[str, int], need: Need, home: tuple[str, ...]
) -> tuple[tuple[str, int], ...] | None:
    if sum(free.values()) < need.gpus:
        return None
    best = _fewest(free, need, home)
    racks: dict[str, dict[str, int]] = {}
    for name, most in free.items():
        racks.setdefault(room.nodes[name].node.rack, {})[name] = most
    if len(racks) > 1:
        inside = [_fewest(racks[rack], need, home) for rack in sorted(racks)]
        near = min((counts for counts in inside if counts), key=len, default=None)
        if near is not None and (best is None or len(near) <= len(best)):
            return near
    return best


def _with_gpus(room: Room, need: Need) -> Iterator[str]:
    for bucket in reversed(list(room.buckets(need.gpu_type))[1:]):
        yield from bucket


def _fewest(free: dict[str, int], need: Need, home: tuple[str, ...]) -> tuple[tuple[str, int], ...] | None:
    """The roomiest nodes one after the other; the last piece goes where it fits tightest."""
    order = sorted(free, key=lambda name: (-free[name], name not in home, name))
    counts: list[tuple[str, int]] = []
    left = need.gpus
    for name in order:
        if free[name] >= left:
            tight = [other for other in order if free[other] >= left and other not in dict(counts)]
            counts.append((min(tight, key=lambda n: (n not in home, free[n], n)), left))
            return tuple(counts)
        counts.append((name, free[name]))
        left -= free[name]
    return None


def on_nodes(room: Room, need: Need, counts: tuple[tuple[str, int], ...], view: JobView) -> Allocation:
    """These many GPUs on these nodes. Nodes that the job holds come first, in their order, so that its first workers
    stay where they are; then those with the most GPUs, so that a shrink drops the small pieces."""
    held = view.allocation.parts if view.allocation else ()
    order = {part.node: at for at, part in enumerate(held)}
    mine = {part.node: part.gpus for part in held}
    ranked = sorted(counts, key=lambda c: (order.get(c[0], len(order)), -c[1], c[0]))
    parts: list[Part] = []
    for rank, (name, k) in enumerate(ranked):
        gpus = pick(room, room.nodes[name], need, k, mine.get(name, ()))
        parts.append(need.part(name, gpus, rank, len(ranked)))
    return Allocation(parts=tuple(parts), gpu_type=need.gpu_type)


def pick(room: Room, node: NodeRoom, need: Need, k: int, mine: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Which GPUs of a node: its own ones, free ones, and as few link groups as possible."""
    eligible = node.eligible(need)
    if len(eligible) > k and room.busy:
        name = node.node.name
        at_once = [g for g in eligible if g.index in mine or room.busy.get((name, g.index), need.job) == need.job]
        eligible = at_once if len(at_once) >= k else eligible
    if len(eligible) == k:
        return tuple(sorted(g.index for g in eligible))
    groups: dict[int, list[Gpu]] = {}
    for gpu in eligible:
        groups.setdefault(gpu.link_group, []).append(gpu)
    chosen: list[int] = []
    while len(chosen) < k:
        left = k - len(chosen)
        group = min(groups, key=lambda g: _group_order(groups[g], left, mine, g))
        gpus = sorted(groups.pop(group), key=lambda g: _gpu_order(room, node.node.name, need, g, mine))
        chosen.extend(g.index for g in gpus[:left])
    return tuple(sorted(chosen))


def _group_order(gpus: list[Gpu], k: int, mine: tuple[int, ...], group: int) -> tuple[int, bool, int, int]:
    """Most of its own first; then the tightest group that is enough; then the largest."""
    overlap = sum(1 for g in gpus if g.index in mine)
    enough = len(gpus) >= k
    return (-min(overlap, k), not enough, len(gpus) if enough else -len(gpus), group)


def _gpu_order(room: Room, name: str, need: Need, gpu: Gpu, mine: tuple[int, ...]) -> tuple[bool, bool, int]:
    busy = room.busy.get((name, gpu.index), need.job) != need.job
    return (gpu.index not in mine, busy, gpu.index)


def _fit_share(room: Room, need: Need, view: JobView, strategy: Strategy) -> Allocation | None:
    """The fullest shared GPU that still takes it, one where nobody has to leave first if possible; else a fresh one."""
    if strategy is tightest_first and (allocation := _join(room, need, view)) is not None:
        return allocation
    one = replace(need, gpus=1, gpu_memory_mib=need.share_memory_mib, shared=False)
    node = fit_whole(room, one, homes(view), strategy)
    if node is None:
        return _join(room, need, view)
    (index,) = pick(room, room.nodes[node], one, 1)
    gpu = room.nodes[node].free[need.gpu_type][index]
    return _shared(need, node, gpu)


def _join(room: Room, need: Need, view: JobView) -> Allocation | None:
    best: tuple[bool, int, int, str, int] | None = None
    home = homes(view)
    for shared in room.shared_gpus(need.gpu_type):
        node = room.nodes[shared.node]
        if not shared.takes(need.share_of(shared.gpu), room.overload_milli) or not node.hosts(need, 0):
            continue
        if not need.accepts(node.node):
            continue
        key = (shared.node not in home, -shared.memory_mib, -shared.milli, shared.node, shared.gpu.index)
        best = min(best, key) if best is not None else key
    if best is None:
        return None
    name, index = best[3], best[4]
    return _shared(need, name, room.nodes[name].shared[index].gpu)


def _shared(need: Need, node: str, gpu: Gpu) -> Allocation:
    part = need.part(node, (gpu.index,))
    return Allocation(parts=(part,), gpu_type=need.gpu_type, share=need.share_of(gpu))


def _fit_cpu(room: Room, need: Need, view: JobView, strategy: Strategy) -> Allocation | None:
    """Where it leaves the fewest GPUs without CPUs: nodes with the fewest free GPUs first, then the tightest."""
    best: tuple[bool, int, int, str] | None = None
    home = homes(view)
    for name, room_of in room.nodes.items():
        if room_of.hosts(need, 0) and need.accepts(room_of.node):
            gpus = sum(map(len, room_of.free.values()))
            cpus = room_of.cpus if strategy is tightest_first else -room_of.cpus
            key = (name not in home, gpus, cpus, name)
            best = min(best, key) if best is not None else key
    if best is None:
        return None
    return Allocation(parts=(need.part(best[3], ()),))
