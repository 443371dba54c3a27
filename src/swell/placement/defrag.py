"""Moves of running jobs that pay: to run closer together, or to let in a job that only fragmentation keeps out.

For a job that should be on fewer nodes than it is (or that has no place at all), look for the node that can be made
free for it at the least cost: the cheapest set of its tenants that frees enough GPUs (dynamic programming over the few
tenants of a node), each of which finds a place elsewhere. What is done must raise the objective as a whole, so a move
that costs more than it brings is not made. For a job, looks at `MAX_NODES` nodes and tries the `MAX_TRIES` cheapest.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from swell.core.ids import JobId
from swell.core.resources import Allocation
from swell.placement.arrange import Arrangement
from swell.placement.fit import fit_whole, homes, on_nodes
from swell.placement.objective import is_move, speed_gain
from swell.placement.room import NodeRoom
from swell.placement.search import explain
from swell.ports import Placed

MAX_NODES = 32
MAX_TRIES = 6
MAX_TENANTS = 16
LEAST_GAIN = 0.01
"""Relative gain of speed; a smaller one is noise and no reason to stop a job."""


def could_gain(arrangement: Arrangement, placed: Placed) -> bool:
    """Whether running on as few nodes as possible, on whichever, would pay for a stop and a start."""
    view, held = placed.view, placed.view.allocation
    if held is None or not arrangement.may_move(view):
        return False
    fewest = arrangement.topology.fewest_nodes(held.gpus, held.gpu_type)
    return speed_gain(view, held, fewest) >= LEAST_GAIN and _pays(arrangement, placed, held, fewest)


def _pays(arrangement: Arrangement, placed: Placed, held: Allocation, nodes: int) -> bool:
    shape = Allocation(parts=held.parts[:nodes], gpu_type=held.gpu_type)
    run_factor = arrangement.worth.restart_factor(placed, shape)
    return (1 + speed_gain(placed.view, held, nodes)) * run_factor > 1


def come_closer(arrangement: Arrangement, placed: Placed) -> bool:
    """Put a job that spans more nodes than it needs on fewer, if that pays; make room for it if that pays too."""
    before = arrangement.lift(placed)
    target = arrangement.fit(placed)
    if target is not None and _better(arrangement, placed, before, target):
        arrangement.put(placed, target)
        explain(arrangement, [placed], None)
        return True
    arrangement.put(placed, before)
    return make_room(arrangement, placed)


def _better(arrangement: Arrangement, placed: Placed, before: Allocation, target: Allocation) -> bool:
    if len(target.parts) >= len(before.parts):
        return False
    if is_move(placed, target) and arrangement.moves_left() < 1:
        return False
    return arrangement.worth.of(placed, target) > arrangement.worth.of(placed, before) + 1e-9


def make_room(arrangement: Arrangement, placed: Placed) -> bool:
    """Free a node for this job by moving others, cheapest first, if the whole is worth more afterwards."""
    need = arrangement.need(placed)
    if not need.gpus:
        return False
    options: list[tuple[float, int, str, tuple[JobId, ...]]] = []
    for name in _likely_nodes(arrangement, placed):
        found = _cheapest(arrangement, placed, arrangement.room.nodes[name], arrangement.tenants(name))
        if found is not None:
            cost, jobs = found
            options.append((cost, len(jobs), name, jobs))
    return any(_try(arrangement, placed, name, jobs) for _, _, name, jobs in sorted(options)[:MAX_TRIES])


def _likely_nodes(arrangement: Arrangement, placed: Placed) -> list[str]:
    """Nodes large enough, its own first, then those that lack least."""
    need, empty = arrangement.need(placed), arrangement.topology.open
    found: dict[str, None] = {}
    for name in chain(homes(placed.view), *reversed(arrangement.room.buckets(need.gpu_type))):
        if name in empty and empty[name].most(need) >= need.gpus:
            found[name] = None
            if len(found) == MAX_NODES:
                break
    return list(found)


def _cheapest(
    arrangement: Arrangement, placed: Placed, room: NodeRoom, tenants: Sequence[Placed]
) -> tuple[float, tuple[JobId, ...]] | None:
    """The set of tenants that frees enough at the least cost, and its cost in GPU-seconds."""
    own = arrangement.places.get(placed.view.id)
    mine = sum(len(part.gpus) for part in own.parts if part.node == room.node.name) if own else 0
    short = arrangement.need(placed).gpus - mine - len(room.eligible(arrangement.need(placed)))
    if short <= 0:
        return 0.0, ()
    movable = [t for t in tenants if t.view.id != placed.view.id and _movable(arrangement, t)][:MAX_TENANTS]
    best: list[tuple[float, tuple[JobId, ...]] | None] = [(0.0, ()), *[None] * short]
    for tenant in movable:
        cost = _cost(arrangement, tenant)
        gpus = sum(len(p.gpus) for p in arrangement.places[tenant.view.id].parts if p.node == room.node.name)
        for freed in range(short, -1, -1):
            so_far = best[freed]
            if so_far is None or freed == short:
                continue
            after = min(short, freed + gpus)
            option = (so_far[0] + cost, (*so_far[1], tenant.view.id))
            best[after] = min(best[after] or option, option)
    return best[short]


def _movable(arrangement: Arrangement, tenant: Placed) -> bool:
    place = arrangement.places[tenant.view.id]
    if place.share is not None or not place.gpus or tenant.view.pinned:
        return False
    return place != tenant.view.allocation or arrangement.may_move(tenant.view)


def _cost(arrangement: Arrangement, tenant: Placed) -> float:
    """GPU-seconds that a stop and a start cost; nothing for one that does not run at this place yet."""
    view = tenant.view
    if arrangement.places[view.id] != view.allocation:
        return 0.0
    return tenant.grant.n * view.stop_cost_s(arrangement.snapshot.now_s)


def _try(arrangement: Arrangement, placed: Placed, name: str, jobs: tuple[JobId, ...]) -> bool:
    """Move these away and put the job here; undone if anyone finds no place or the whole is worth no more."""
    movers = [arrangement.wanted[job] for job in jobs]
    was = {mover.view.id: arrangement.lift(mover) for mover in movers}
    own = arrangement.lift(placed) if placed.view.id in arrangement.places else None
    worth = arrangement.worth
    before = sum(worth.of(arrangement.wanted[job], place) for job, place in was.items())
    before += worth.of(placed, own) if own else 0.0
    need = arrangement.need(placed)
    done: list[Placed] = []
    if arrangement.room.nodes[name].most(need) >= need.gpus:
        arrangement.put(placed, on_nodes(arrangement.room, need, ((name, need.gpus),), placed.view))
        done = [placed, *_put_back(arrangement, movers, avoid=name)]
    after = sum(worth.of(p, arrangement.places[p.view.id]) for p in done)
    new_moves = [p for p in done if is_move(p, arrangement.places[p.view.id]) and not _moved_already(p, was, own)]
    if len(done) == len(movers) + 1 and after > before + 1e-9 and len(new_moves) <= arrangement.moves_left():
        explain(arrangement, new_moves, placed)
        return True
    for p in done:
        arrangement.lift(p)
    for mover in movers:
        arrangement.put(mover, was[mover.view.id])
    if own is not None:
        arrangement.put(placed, own)
    return False


def _put_back(arrangement: Arrangement, movers: Sequence[Placed], avoid: str) -> list[Placed]:
    done: list[Placed] = []
    for mover in sorted(movers, key=lambda m: -m.grant.n):
        need = arrangement.need(mover)
        node = fit_whole(arrangement.room, need, without=avoid)
        target = on_nodes(arrangement.room, need, ((node, need.gpus),), mover.view) if node else arrangement.fit(mover)
        if target is None:
            break
        arrangement.put(mover, target)
        done.append(mover)
    return done


def _moved_already(placed: Placed, was: dict[JobId, Allocation], own: Allocation | None) -> bool:
    before = was.get(placed.view.id, own)
    return before is not None and is_move(placed, before)
