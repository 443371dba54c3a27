"""One placement pass, for every strategy: which jobs stay, which have to be placed, and the layout that results.

Jobs that hold what they were granted stay where they are, unless their node is drained or gone or they outgrew their
share of a GPU. Everything else is put somewhere, running jobs first, large ones first; if that leaves one out, again in
order of precedence, so that the last ones are left out. O(jobs) when nothing changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter

from swell.core.capacity import Need
from swell.core.decision import Layout, Move, Reason
from swell.core.ids import JobId
from swell.core.resources import Allocation, Part, Share
from swell.core.snapshot import JobView, Snapshot
from swell.placement import words
from swell.placement.fit import Strategy, fit, tightest_first
from swell.placement.need import need_of
from swell.placement.objective import Worth, is_move, moved_workers
from swell.placement.room import Room, Topology
from swell.placement.sharing import must_be_alone, needs_more_memory, outgrown, share_now
from swell.ports import Placed

_id = attrgetter("id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a running job that keeps its size moves. `forced`: it cannot stay where it is."""

    because: str
    gain: float = 0.0
    for_job: JobId | None = None
    forced: bool = False


@dataclass(slots=True)
class Sorted:
    """Wanted jobs: those that hold what they should, and those to be put somewhere, both in order of precedence."""

    stay: list[Placed] = field(default_factory=list)
    todo: list[Placed] = field(default_factory=list)
    causes: dict[JobId, Cause] = field(default_factory=dict)
    check_shares: bool = False  # somebody uses more of a GPU than it reserved
    spread_out: list[Placed] = field(default_factory=list)  # of `stay`, on more nodes than their GPUs need

    def whole_parts(self) -> dict[str, list[Part]]:
        """By node: what those that stay on whole GPUs (or none) hold of it."""
        parts: dict[str, list[Part]] = {}
        for placed in self.stay:
            held = placed.view.allocation
            if held is not None and held.share is None:
                for part in held.parts:
                    parts.setdefault(part.node, []).append(part)
        return parts

    @property
    def settled(self) -> bool:
        return not self.todo and not self.check_shares

    def as_is(self) -> Layout:
        return Layout(allocations={p.view.id: p.view.allocation for p in self.stay if p.view.allocation is not None})


def sort_out(topology: Topology, wanted: Sequence[Placed]) -> Sorted:
    out = Sorted()
    steady = topology.steady
    for placed in wanted:
        view, held = placed.view, placed.view.allocation
        if held is None or (view.stopping and not view.pinned):
            out.todo.append(placed)
            continue
        parts = held.parts
        stands = parts[0].node in steady if len(parts) == 1 else steady.issuperset(held.nodes)
        if view.pinned or (stands and _holds_its_grant(placed, held)):
            out.stay.append(placed)
            if held.share is not None and outgrown(view):
                out.check_shares = True
            if len(parts) > 1 and len(parts) > topology.fewest_nodes(held.gpus, held.gpu_type):
                out.spread_out.append(placed)
            continue
        out.todo.append(placed)
        if not stands:
            gone = next(node for node in held.nodes if node not in topology.steady)
            what = "is being drained" if gone in topology.leaving else "is gone"
            out.causes[view.id] = Cause(because=f"{gone} {what}", forced=True)
    return out


def _holds_its_grant(placed: Placed, held: Allocation) -> bool:
    return placed.view.held_n == placed.grant.n and (held.gpu_type == placed.grant.gpu_type or not held.gpus)


class Arrangement:
    """A layout under construction. `put` and `lift` keep room and places consistent."""

    def __init__(
        self,
        snapshot: Snapshot,
        topology: Topology,
        wanted: Sequence[Placed],
        out: Sorted,
        strategy: Strategy = tightest_first,
    ) -> None:
        self.snapshot = snapshot
        self.topology = topology
        self.wanted = {placed.view.id: placed for placed in wanted}
        self.strategy = strategy
        self.room = Room(topology, snapshot.options.share_overload_milli, out.whole_parts())
        self.worth = Worth(snapshot.now_s, topology)
        self.places: dict[JobId, Allocation] = {}
        self._on: dict[str, dict[JobId, None]] | None = None  # by node; made when somebody asks
        self.causes: dict[JobId, Cause] = {}
        self.unplaced: dict[JobId, Reason] = {}
        self._needs: dict[JobId, Need] = {}

    @cached_property
    def named(self) -> frozenset[str]:
        """Nodes that some of these jobs name."""
        return frozenset(node for placed in self.wanted.values() for node in placed.view.spec.nodes)

    def need(self, placed: Placed) -> Need:
        need = self._needs.get(placed.view.id)
        if need is None:
            need = self._needs[placed.view.id] = need_of(placed)
        return need

    def put(self, placed: Placed, allocation: Allocation) -> None:
        self.places[placed.view.id] = allocation
        if self._on is not None:
            _note(self._on, placed.view.id, allocation)
        self.room.take(allocation, self.accounted(placed.view, allocation))

    def lift(self, placed: Placed) -> Allocation:
        allocation = self.places.pop(placed.view.id)
        if self._on is not None:
            for part in allocation.parts:
                del self._on[part.node][placed.view.id]
        self.room.give_back(allocation, self.accounted(placed.view, allocation))
        return allocation

    def tenants(self, node: str) -> list[Placed]:
        """Jobs that this layout has on the node."""
        if self._on is None:
            self._on = {}
            for job, allocation in self.places.items():
                _note(self._on, job, allocation)
        return [self.wanted[job] for job in self._on.get(node, {})]

    def accounted(self, view: JobView, allocation: Allocation) -> Share | None:
        """Where it runs, what was measured counts, not what was once reserved. None: as the allocation says."""
        if allocation.share is None or allocation != view.allocation:
            return None
        part = allocation.parts[0]
        gpu = self.topology.usable.get(part.node, {}).get(part.gpus[0])
        return share_now(view, gpu) if gpu else None

    def settle(self, out: Sorted) -> list[Placed]:
        """Let those stay who can; returns those to be put somewhere."""
        self.causes.update(out.causes)
        wanted = self.wanted
        others = [view for view in self.snapshot.holding if view.id not in wanted]
        self._take_what_nobody_may_touch(others)
        crowded_out: dict[JobId, None] = {}
        for placed in self._in_order_of_right(out):
            held = placed.view.allocation
            assert held is not None  # it stays
            if held.share is None:
                self.places[placed.view.id] = held  # the room was made without what it holds
            elif out.check_shares and not placed.view.pinned and not self._still_fits(placed.view, held):
                crowded_out[placed.view.id] = None
                self.causes[placed.view.id] = self._crowded(placed, held)
            else:
                self.put(placed, held)
        todo = out.todo
        if crowded_out:
            crowded_out |= dict.fromkeys(placed.view.id for placed in todo)
            todo = [placed for job, placed in wanted.items() if job in crowded_out]
        self._note_who_is_leaving(others + [placed.view for placed in todo])
        return todo

    def _in_order_of_right(self, out: Sorted) -> Sequence[Placed]:
        if not out.check_shares:
            return out.stay
        return sorted(out.stay, key=lambda p: (not p.view.pinned, outgrown(p.view)))

    def _take_what_nobody_may_touch(self, others: Sequence[JobView]) -> None:
        for view in others:
            if view.pinned and view.allocation is not None:
                self.room.take(view.allocation)

    def _note_who_is_leaving(self, views: Sequence[JobView]) -> None:
        for view in sorted(views, key=_id):
            if view.allocation is not None:
                for part in view.allocation.parts:
                    for gpu in part.gpus:
                        self.room.busy[part.node, gpu] = view.id

    def _still_fits(self, view: JobView, held: Allocation) -> bool:
        share = self.accounted(view, held)
        room = self.room.nodes.get(held.parts[0].node)
        shared = room.shared.get(held.parts[0].gpus[0]) if room and share else None
        return shared is None or share is None or shared.takes(share, self.room.overload_milli)

    def _crowded(self, placed: Placed, held: Allocation) -> Cause:
        if held.share is not None and needs_more_memory(placed.view):
            now_mib, had_mib = placed.view.share_memory_mib, held.share.memory_mib
            return Cause(because=f"it outgrew its {had_mib} MiB of the GPU and needs {now_mib} MiB", forced=True)
        if must_be_alone(placed.view):
            because = "it and its neighbours slow each other down by more than sharing the GPU saves"
            return Cause(because=because, forced=True)
        return Cause(because="a job beside it outgrew its share of the GPU and may not be stopped", forced=True)

    def place_all(self, todo: Sequence[Placed]) -> None:
        """Those on their way to a place first; then running ones, then large ones; if that leaves one out, the others
        in order of precedence."""
        todo = [placed for placed in todo if not self._goes_to_its_target(placed)]
        by_size = sorted(todo, key=lambda p: (p.view.allocation is None, not p.view.gpu_milli, -p.grant.n))
        if not self._try_all(by_size, stop_at_first=True):
            self._try_all(todo, stop_at_first=False)

    def _goes_to_its_target(self, placed: Placed) -> bool:
        """Put it where an earlier pass decided, unless it could start at once, without waiting for another job, on
        nodes that it did not use before (it may have been stopped to leave those)."""
        target = placed.target
        if target is None or target.share is not None or not self.room.holds(target):
            return False
        if placed.view.allocation is None and not self._free_at_once(placed, target):
            other = self.fit(placed)
            if other is not None and self._free_at_once(placed, other) and not _was_on(placed.view, other):
                target = other
        self.put(placed, target)
        return True

    def _free_at_once(self, placed: Placed, place: Allocation) -> bool:
        busy, job = self.room.busy, placed.view.id
        return all(busy.get((part.node, gpu), job) == job for part in place.parts for gpu in part.gpus)

    def _try_all(self, order: Sequence[Placed], *, stop_at_first: bool) -> bool:
        done: list[Placed] = []
        for placed in order:
            allocation = self.fit(placed)
            if allocation is not None:
                self.put(placed, allocation)
                done.append(placed)
            elif stop_at_first:
                for other in done:
                    self.lift(other)
                return False
        return True

    @property
    def stands(self) -> bool:
        """Whether an earlier plan is still being carried out: no job is moved for a better place meanwhile."""
        return any(placed.target is not None for placed in self.wanted.values())

    def left_out(self) -> list[Placed]:
        if len(self.places) == len(self.wanted):
            return []
        return [placed for job, placed in self.wanted.items() if job not in self.places]

    def fit(self, placed: Placed) -> Allocation | None:
        return fit(self.room, self.need(placed), placed.view, self.strategy)

    def settle_for_less(self) -> None:
        """A job that finds no place at its granted size takes the largest it allows that fits: a running one keeps
        what it holds rather than stop, a waiting one starts smaller rather than wait."""
        for placed in self.left_out():
            allocation = next(self._smaller(placed), None)
            if allocation is None:
                self.unplaced[placed.view.id] = words.why_not(self.room, self.need(placed))
            else:
                self.put(placed, allocation)
        for placed in self._changed():
            if self._spans_too_many(placed):
                self._prefer_fewer(placed)

    def _changed(self) -> list[Placed]:
        """Jobs whose place is not the one they hold: a few of many."""
        places = self.places
        return [placed for job, placed in self.wanted.items() if places.get(job) is not placed.view.allocation]

    def _spans_too_many(self, placed: Placed) -> bool:
        place = self.places.get(placed.view.id)
        if place is None or len(place.parts) < 2 or place == placed.view.allocation:
            return False
        return len(place.parts) > self.topology.fewest_nodes(place.gpus, place.gpu_type)

    def _prefer_fewer(self, placed: Placed) -> None:
        """More GPUs on more nodes may be slower than fewer on one: then the job has the fewer, or stays as it is."""
        split = self.lift(placed)
        choices = [split]
        for other in self._smaller(placed):
            choices.append(other)
            if len(other.parts) == 1 and other != placed.view.allocation:
                break
        self.put(placed, min(choices, key=lambda place: self._time_s(placed.view, place)))

    def _time_s(self, view: JobView, place: Allocation) -> float:
        """Until it ends there, with a stop and a start if it has to."""
        rate = view.speed.rate(place.gpus, len(place.parts), place.gpu_type)
        restarts = view.allocation is not None and not view.stopping and place != view.allocation
        run_s = view.remaining_s(self.snapshot.now_s) / max(rate, 1e-9)
        return run_s + (view.stop_cost_s(self.snapshot.now_s) if restarts else 0.0)

    def _smaller(self, placed: Placed) -> Iterator[Allocation]:
        """Places for fewer GPUs than granted: what it holds, if that is fewer, then ever smaller sizes."""
        view, held = placed.view, placed.view.allocation
        if held is not None and not view.stopping and 0 < held.gpus < placed.grant.n and self.room.holds(held):
            yield held
        for n in sorted((s for s in view.sizes if s < placed.grant.n), reverse=True):
            allocation = fit(self.room, need_of(placed, n), view, self.strategy)
            if allocation is not None:
                yield allocation

    def may_move(self, view: JobView) -> bool:
        """It may be stopped, has run for a while, and was not moved a short time ago."""
        options, now_s = self.snapshot.options, self.snapshot.now_s
        if view.pinned or (view.migrated_s and now_s < view.migrated_s + options.move_interval_s):
            return False
        return now_s >= view.settled_at_s(options.min_run_s)

    def on_open_ground(self, place: Allocation) -> bool:
        """All its GPUs could be given out again: none is on a node set aside, or unhealthy, or used by others too."""
        usable = self.topology.usable
        return all(gpu in usable.get(part.node, {}) for part in place.parts for gpu in part.gpus)

    def may_leave(self, placed: Placed, place: Allocation) -> bool:
        """Whether a search may put it elsewhere and back: a GPU that broke under it could not be given to it again."""
        if place != placed.view.allocation:
            return True
        return self.may_move(placed.view) and self.on_open_ground(place)

    def moves_left(self) -> int:
        chosen = sum(1 for job, cause in self.causes.items() if not cause.forced and self._moves(self.wanted[job]))
        return self.snapshot.options.max_moves - chosen

    def _moves(self, placed: Placed) -> bool:
        place = self.places.get(placed.view.id)
        return place is not None and is_move(placed, place)

    def layout(self, gap: float | None = None) -> Layout:
        moves = tuple(self._move(p, self.places[p.view.id]) for p in self._changed() if self._moves(p))
        return Layout(allocations=self._in_order(), unplaced=self.unplaced, moves=moves, gap=gap)

    def _in_order(self) -> Mapping[JobId, Allocation]:
        places = self.places
        if len(places) == len(self.wanted):
            return dict(zip(self.wanted, map(places.__getitem__, self.wanted), strict=True))
        return {job: places[job] for job in self.wanted if job in places}

    def _move(self, placed: Placed, target: Allocation) -> Move:
        view, held = placed.view, placed.view.allocation
        assert held is not None  # it moves from somewhere
        cause, cost_s = self.causes[view.id], view.stop_cost_s(self.snapshot.now_s)
        return Move(
            job=view.id,
            workers=moved_workers(held, target),
            why=words.moved(held, target, cause.because, cost_s),
            gain=cause.gain,
            cost_s=cost_s,
            for_job=cause.for_job,
        )


def _was_on(view: JobView, place: Allocation) -> bool:
    return any(node in view.last_nodes for node in place.nodes)


def _note(on: dict[str, dict[JobId, None]], job: JobId, allocation: Allocation) -> None:
    for part in allocation.parts:
        on.setdefault(part.node, {})[job] = None
