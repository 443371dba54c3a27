"""Consolidated best fit, the default: jobs keep their place; a new one goes to as few nodes as possible.

A job goes to the tightest node that takes it whole, else to as few nodes (then switches) as possible. Then, for a
bounded number of jobs that have no place or span more nodes than they need: move somebody, if that pays (`defrag`), and
search a small neighbourhood exactly (`search`). O(jobs) when nothing changed; O(nodes) at worst for each job that has
to be put somewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swell.core.decision import Layout
from swell.core.snapshot import Snapshot
from swell.placement.arrange import Arrangement, Sorted, sort_out
from swell.placement.defrag import come_closer, could_gain, make_room
from swell.placement.room import Topology
from swell.placement.search import Budget, polish
from swell.ports import Placed, Random

TRIES = 8
"""Jobs that one pass examines for a better place; later passes examine the others."""
EVALUATIONS = 400


class Consolidated:
    name = "consolidated"

    def __init__(self) -> None:
        self._topology = Topology(())

    def place(self, snapshot: Snapshot, wanted: Sequence[Placed], rng: Random) -> Layout:
        return self.improved(snapshot, wanted, lambda _: None)

    def improved(
        self, snapshot: Snapshot, wanted: Sequence[Placed], search: Callable[[Arrangement], float | None]
    ) -> Layout:
        """The layout after `search`, unless there is nothing to improve. `search` returns the proven gap, if it knows
        one."""
        arrangement = self.arrange(snapshot, wanted)
        if not isinstance(arrangement, Arrangement):
            return arrangement.as_is()
        gap = None if arrangement.stands else search(arrangement)
        arrangement.settle_for_less()
        return arrangement.layout(gap=gap)

    def arrange(self, snapshot: Snapshot, wanted: Sequence[Placed]) -> Arrangement | Sorted:
        """The layout as a ledger that other searches can start from; if nothing has to be placed, only the jobs that
        stay."""
        if snapshot.nodes is not self._topology.nodes:
            self._topology = Topology(snapshot.nodes)
        out = sort_out(self._topology, wanted)
        if out.settled and not any(worth_a_look(snapshot, p) for p in out.spread_out):
            return out
        arrangement = Arrangement(snapshot, self._topology, wanted, out)
        todo = arrangement.settle(out)
        arrangement.place_all(todo)
        if not arrangement.stands:
            improve(arrangement, todo, out.spread_out)
        return arrangement


def worth_a_look(snapshot: Snapshot, placed: Placed) -> bool:
    """A cheap first test, without a ledger: whether it could be moved now at all."""
    view, options = placed.view, snapshot.options
    settled = snapshot.now_s >= view.settled_at_s(options.min_run_s)
    return settled and not view.pinned and snapshot.now_s >= view.migrated_s + options.move_interval_s


def improve(arrangement: Arrangement, todo: Sequence[Placed], spread_out: Sequence[Placed]) -> None:
    """First those without a place, then those newly split, then running ones that span too many nodes."""
    for placed in arrangement.left_out()[:TRIES]:
        make_room(arrangement, placed)
    for placed in [p for p in todo if is_split(arrangement, p)][:TRIES]:
        come_closer(arrangement, placed)
    for placed in [p for p in spread_out if could_gain(arrangement, p)][:TRIES]:
        come_closer(arrangement, placed)
    split = [p for p in [*todo, *spread_out] if is_split(arrangement, p)]
    wanting = [p for p in split if arrangement.may_leave(p, arrangement.places[p.view.id])] + arrangement.left_out()
    if wanting:
        polish(arrangement, wanting[:TRIES], Budget(EVALUATIONS))


def is_split(arrangement: Arrangement, placed: Placed) -> bool:
    place = arrangement.places.get(placed.view.id)
    if place is None or len(place.parts) < 2:
        return False
    return len(place.parts) > arrangement.topology.fewest_nodes(place.gpus, place.gpu_type)
