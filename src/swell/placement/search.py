"""Branch and bound over the places of a few jobs on a few nodes; everything else stays where it is.

Depth first, large jobs first, each job's likeliest place first. A branch is left when even its best end could not beat
the best layout known: first by who has a place (in order of precedence), then by the objective. The work is bounded by
a budget; what is left open when it is used up bounds how far the answer may be from the optimum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from swell.core.capacity import kind_of, realm_of
from swell.core.ids import JobId
from swell.core.resources import Allocation
from swell.placement import words
from swell.placement.arrange import Arrangement, Cause
from swell.placement.fit import homes, on_nodes, split
from swell.placement.objective import PER_FRAGMENT, is_move, speed_gain
from swell.ports import Placed

SCOPE_NODES = 8
SCOPE_JOBS = 10
EPSILON = 1e-9
MAX_WAYS = 500
FEW_WAYS = 12
"""To divide one job over nodes: looked at by a complete search, and by a search around one job."""

Counts = tuple[tuple[str, int], ...]
"""(node, number of its GPUs), for each node."""


@dataclass(slots=True)
class Budget:
    """`left`: evaluations that may still be made. `deadline`: whether the time is up (pure code has no clock)."""

    left: int
    deadline: Callable[[], bool] | None = None

    def spend(self) -> bool:
        self.left -= 1
        if self.deadline is not None and self.deadline():
            self.left = -1
        return self.left >= 0


@dataclass(frozen=True, slots=True)
class Score:
    """Which jobs have a place (the first in precedence is the highest bit), then what the layout is worth."""

    placed: int
    worth: float

    def below(self, placed: int, worth: float) -> bool:
        """Whether the other score is of a better layout."""
        return placed > self.placed or (placed == self.placed and worth - EPSILON > self.worth)


class Seeker:
    """A job that is looked for a place, and what of it stays the same all through a search."""

    __slots__ = ("bit", "held", "home", "may_go", "moves", "need", "placed", "worth")

    def __init__(self, arrangement: Arrangement, placed: Placed, bit: int) -> None:
        view = placed.view
        forced = is_forced(arrangement, view.id)
        self.placed, self.bit = placed, bit
        self.need, self.home = arrangement.need(placed), homes(view)
        self.held = _counts_it_may_keep(placed)
        self.may_go = not self.held or forced or arrangement.may_move(view)
        self.moves = bool(self.held) and not forced  # to be elsewhere counts as a move
        self.worth: dict[Counts, float] = {}  # which GPUs of a node they are makes no difference to it


def _counts_it_may_keep(placed: Placed) -> Counts:
    """Of what it holds, if that is what it was granted; else nothing."""
    view, held = placed.view, placed.view.allocation
    if held is None or view.stopping or view.held_n != placed.grant.n or held.gpu_type != placed.grant.gpu_type:
        return ()
    return tuple((part.node, len(part.gpus)) for part in held.parts)


class Search:
    """Over `jobs`, on `nodes`. `all_splits` looks at every way to divide a job over the nodes, not only the best."""

    def __init__(
        self,
        arrangement: Arrangement,
        jobs: Sequence[Placed],
        nodes: Sequence[str],
        budget: Budget,
        *,
        all_splits: bool = False,
    ) -> None:
        self._a = arrangement
        self._nodes = list(nodes)
        self._budget = budget
        self._all_splits = all_splits
        rank = {job: at for at, job in enumerate(arrangement.wanted)}
        in_order = sorted(jobs, key=lambda p: rank[p.view.id])
        seekers = [Seeker(arrangement, p, 1 << (len(jobs) - 1 - at)) for at, p in enumerate(in_order)]
        self._seekers = sorted(seekers, key=lambda s: -s.placed.grant.n)
        self._homes = {name for seeker in seekers for name in seeker.home}
        self._moves_allowed = arrangement.moves_left() + sum(map(self._moves_already, seekers))
        self._rest = self._suffixes()
        self._best_counts: dict[JobId, Counts] = {}
        self._best = Score(0, 0.0)
        self._gave_up = False
        self.open_worth: float | None = None  # the most that what was given up for want of budget could be worth

    def _moves_already(self, seeker: Seeker) -> bool:
        place = self._a.places.get(seeker.placed.view.id)
        return seeker.moves and place is not None and is_move(seeker.placed, place)

    def _suffixes(self) -> list[tuple[int, float]]:
        """Bits and worth of all jobs from the k-th on, at best."""
        rest = [(0, 0.0)]
        for seeker in reversed(self._seekers):
            bits, worth = rest[-1]
            rest.append((bits | seeker.bit, worth + self._a.worth.at_best(seeker.placed)))
        return rest[::-1]

    def run(self) -> bool:
        """True if a better layout was found; the arrangement holds the best one afterwards."""
        places = self._a.places
        start = {s.placed.view.id: places[s.placed.view.id] for s in self._seekers if s.placed.view.id in places}
        before = self._best = self._score(start)
        self._clear()
        self._descend(0, 0, 0.0, 0, {})
        if self._gave_up:
            self.open_worth = max(self.open_worth or 0.0, self._rest[0][1])
        if before.below(self._best.placed, self._best.worth) and self._carry_out(self._best_counts):
            return True
        self._clear()
        for seeker in self._seekers:
            if seeker.placed.view.id in start:
                self._a.put(seeker.placed, start[seeker.placed.view.id])
        self._best = before
        return False

    def _clear(self) -> None:
        for seeker in self._seekers:
            if seeker.placed.view.id in self._a.places:
                self._a.lift(seeker.placed)

    def _carry_out(self, counts: dict[JobId, Counts]) -> bool:
        """Put the jobs of the best layout: those that stay get their own GPUs first, then the others choose."""
        chosen = [seeker for seeker in self._seekers if seeker.placed.view.id in counts]
        for seeker in sorted(chosen, key=lambda s: counts[s.placed.view.id] is not s.held):
            wanted = counts[seeker.placed.view.id]
            if any(self._a.room.nodes[n].most(seeker.need) < k for n, k in wanted):
                return False
            self._a.put(seeker.placed, self._on(seeker, wanted))
        return True

    @property
    def best_worth(self) -> float:
        return self._best.worth

    def _score(self, places: dict[JobId, Allocation]) -> Score:
        worth = sum(self._a.worth.of(self._a.wanted[job], place) for job, place in places.items())
        bits = sum(seeker.bit for seeker in self._seekers if seeker.placed.view.id in places)
        return Score(bits, worth - PER_FRAGMENT * self._a.room.fragmentation(self._nodes))

    def _descend(self, depth: int, bits: int, worth: float, moves: int, counts: dict[JobId, Counts]) -> None:
        rest_bits, rest_worth = self._rest[depth]
        if not self._best.below(bits | rest_bits, worth + rest_worth):
            return
        if depth == len(self._seekers):
            self._note(bits, worth, counts)
            return
        if not self._budget.spend():
            self.open_worth = max(self.open_worth or 0.0, worth + rest_worth)
            return
        seeker = self._seekers[depth]
        placed, job = seeker.placed, seeker.placed.view.id
        for way in self._candidates(seeker):
            more = moves + (seeker.moves and way is not seeker.held)
            if more > self._moves_allowed or not self._hopeful(depth, bits, worth, way):
                continue
            allocation = self._on(seeker, way)
            gain = self._worth(seeker, way, allocation)
            self._a.put(placed, allocation)
            counts[job] = way
            self._descend(depth + 1, bits | seeker.bit, worth + gain, more, counts)
            del counts[job]
            self._a.lift(placed)
        if placed.view.allocation is None or placed.view.stopping:
            self._descend(depth + 1, bits, worth, moves, counts)

    def _note(self, bits: int, worth: float, counts: dict[JobId, Counts]) -> None:
        """The end of a branch."""
        worth -= PER_FRAGMENT * self._a.room.fragmentation(self._nodes)
        if self._best.below(bits, worth):
            self._best, self._best_counts = Score(bits, worth), dict(counts)

    def _hopeful(self, depth: int, bits: int, worth: float, way: Counts) -> bool:
        """Whether this division is worth trying, by what is known before it is tried."""
        seeker, (rest_bits, rest_worth) = self._seekers[depth], self._rest[depth + 1]
        known = seeker.worth.get(way)
        return known is None or self._best.below(bits | seeker.bit | rest_bits, worth + known + rest_worth)

    def _worth(self, seeker: Seeker, way: Counts, allocation: Allocation) -> float:
        worth = seeker.worth.get(way)
        if worth is None:
            meant = seeker.placed.view.allocation if way is seeker.held else None
            worth = seeker.worth[way] = self._a.worth.of(seeker.placed, meant or allocation)
        return worth

    def _on(self, seeker: Seeker, way: Counts) -> Allocation:
        """The given number of GPUs of these nodes; first those it holds, whichever job seems to have them now."""
        held = seeker.placed.view.allocation
        if way is seeker.held and held is not None and self._a.room.holds(held):
            return held
        return on_nodes(self._a.room, seeker.need, way, seeker.placed.view)

    def _candidates(self, seeker: Seeker) -> Iterator[Counts]:
        need, held, rooms = seeker.need, seeker.held, self._a.room.nodes
        if held and all(name in rooms and rooms[name].most(need) >= k for name, k in held):
            yield held
        if not seeker.may_go:
            return
        for name in self._distinct(seeker):
            if held != ((name, need.gpus),):
                yield ((name, need.gpus),)
        if not need.one_node and need.gpus > 1:
            yield from (way for way in self._splits(seeker) if not held or dict(way) != dict(held))

    def _distinct(self, seeker: Seeker) -> list[str]:
        """Nodes that take the job whole, its own first, then the tightest; of several empty ones alike only one."""
        need, rooms, home = seeker.need, self._a.room.nodes, seeker.home
        seen: dict[tuple[object, ...], None] = {}
        names: list[str] = []
        able = [name for name in self._nodes if rooms[name].most(need) >= need.gpus]
        for name in sorted(able, key=lambda n: (n not in home, sum(map(len, rooms[n].free.values())), n)):
            room = rooms[name]
            if name not in self._homes and sum(map(len, room.free.values())) == len(room.node.gpus):
                kind = kind_of(room.node, self._a.named)
                alike = (len(room.node.gpus), kind, room.cpus, room.memory_mib)
                if alike in seen:
                    continue
                seen[alike] = None
            names.append(name)
        return names

    def _splits(self, seeker: Seeker) -> Iterator[Counts]:
        """Ways to divide the job, on few nodes first. The search is not complete if it gives up on some of them."""
        need, rooms = seeker.need, self._a.room.nodes
        best = split(self._a.room, need, seeker.home, self._nodes)
        if best is None:
            return
        if len(best) > 1:
            yield best
        free = [(name, most) for name in self._nodes if (most := rooms[name].most(need))]
        widest = len(free) if self._all_splits else len(best)
        ways = (way for nodes in range(2, widest + 1) for way in self._ways(free, need.gpus, nodes))
        limit = MAX_WAYS if self._all_splits else FEW_WAYS
        for tried, way in enumerate(ways):
            if tried == limit:
                self._gave_up = self._gave_up or self._all_splits
                return
            yield way

    def _ways(self, free: Sequence[tuple[str, int]], gpus: int, nodes: int) -> Iterator[Counts]:
        """Every way to take `gpus` from exactly `nodes` of these nodes, which reach each other."""
        rooms = self._a.room.nodes
        for some in combinations(free, nodes):
            if len({realm_of(rooms[name].node) for name, _ in some}) == 1:
                yield from _divide(some, gpus)


def _divide(nodes: Sequence[tuple[str, int]], gpus: int) -> Iterator[Counts]:
    """Every way to take `gpus` from these nodes, at least one from each, large pieces first."""
    (name, most), rest = nodes[0], nodes[1:]
    if not rest:
        if 0 < gpus <= most:
            yield ((name, gpus),)
        return
    room = sum(k for _, k in rest)
    for k in range(min(most, gpus - len(rest)), max(0, gpus - room - 1), -1):
        for way in _divide(rest, gpus - k):
            yield ((name, k), *way)


def polish(arrangement: Arrangement, wanting: Sequence[Placed], budget: Budget) -> None:
    """Search around each job that could be better off, while the budget lasts."""
    for placed in wanting:
        if budget.left <= 0:
            return
        if not arrangement.need(placed).gpus:
            continue
        nodes = neighbourhood(arrangement, placed)
        jobs = jobs_on(arrangement, nodes, placed)
        search = Search(arrangement, jobs, nodes, budget)
        if search.run():
            explain(arrangement, jobs, placed)


def neighbourhood(arrangement: Arrangement, placed: Placed) -> list[str]:
    """Its nodes, and those with the most room beside them."""
    need = arrangement.need(placed)
    place = arrangement.places.get(placed.view.id)
    names = dict.fromkeys(place.nodes if place else ())
    for bucket in reversed(arrangement.room.buckets(need.gpu_type)):
        names.update(dict.fromkeys(bucket))
        if len(names) >= 4 * SCOPE_NODES:
            break
    open_nodes = [name for name in names if name in arrangement.room.nodes]
    return [n for n in open_nodes if need.accepts(arrangement.room.nodes[n].node)][:SCOPE_NODES]


def jobs_on(arrangement: Arrangement, nodes: Sequence[str], first: Placed) -> list[Placed]:
    """Jobs of whole GPUs that are on these nodes and nowhere else and may be somewhere else; cheapest first."""
    inside = dict.fromkeys(nodes)
    there = {placed.view.id: placed for node in nodes for placed in arrangement.tenants(node)}
    found = [p for p in there.values() if p is not first and _free_to_go(arrangement, p, inside)]

    def cost_s(mover: Placed) -> float:
        stays = arrangement.places[mover.view.id] == mover.view.allocation
        return mover.view.stop_cost_s(arrangement.snapshot.now_s) if stays else 0.0

    found.sort(key=cost_s)
    return [first, *found[: SCOPE_JOBS - 1]]


def _free_to_go(arrangement: Arrangement, placed: Placed, inside: dict[str, None]) -> bool:
    place = arrangement.places[placed.view.id]
    if place.share is not None or place.gpus != placed.grant.n or placed.view.pinned:
        return False
    if not all(part.node in inside for part in place.parts):
        return False
    return arrangement.may_leave(placed, place)


def explain(arrangement: Arrangement, jobs: Sequence[Placed], first: Placed | None) -> None:
    """Say why each of these moved, for those that did."""
    for placed in jobs:
        job, held = placed.view.id, placed.view.allocation
        place = arrangement.places.get(job)
        if place is None or held is None or not is_move(placed, place) or is_forced(arrangement, job):
            continue
        gain = speed_gain(placed.view, held, len(place.parts))
        if gain > 0:
            arrangement.causes[job] = Cause(because=words.closer(held, place, gain), gain=gain)
        elif first is not None and first is not placed:
            because = f"makes room for job {first.view.id}"
            arrangement.causes[job] = Cause(because=because, gain=gain, for_job=first.view.id)
        else:
            arrangement.causes[job] = Cause(because="lets others run closer together", gain=gain)


def is_forced(arrangement: Arrangement, job: JobId) -> bool:
    cause = arrangement.causes.get(job)
    return cause is not None and cause.forced
