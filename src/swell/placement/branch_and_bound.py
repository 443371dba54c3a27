"""Branch and bound: the optimal layout for small clusters; for larger ones the best found, and how far off it may be.

Starts from what `consolidated` would do and searches all places of all jobs that may move (`search`). Up to `MAX_JOBS`
jobs and `MAX_NODES` nodes the search is complete if the budget allows: then the gap is 0. Beyond that, neighbourhoods
are searched one after the other and the gap is measured against a layout in which every job is at its best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swell.core.decision import Layout
from swell.core.snapshot import Snapshot
from swell.placement.arrange import Arrangement
from swell.placement.consolidated import Consolidated, is_split
from swell.placement.search import Budget, Search, explain, polish
from swell.ports import Placed, Random

MAX_JOBS = 16
MAX_NODES = 8
EVALUATIONS = 3000


class BranchAndBound:
    """`timer` starts a stopwatch for one pass and returns the question “is the time up?” (the daemon has a clock)."""

    name = "branch-and-bound"

    def __init__(self, evaluations: int = EVALUATIONS, timer: Callable[[], Callable[[], bool]] | None = None) -> None:
        self._evaluations = evaluations
        self._timer = timer
        self._start = Consolidated()

    def place(self, snapshot: Snapshot, wanted: Sequence[Placed], rng: Random) -> Layout:
        return self._start.improved(snapshot, wanted, self._search)

    def _search(self, arrangement: Arrangement) -> float:
        budget = Budget(self._evaluations, self._timer() if self._timer else None)
        scope = movable(arrangement)
        if len(scope) <= MAX_JOBS and len(arrangement.room.nodes) <= MAX_NODES:
            return self._exact(arrangement, scope, budget)
        polish(arrangement, [p for p in arrangement.wanted.values() if is_split(arrangement, p)], budget)
        return gap_to_best(arrangement)

    def _exact(self, arrangement: Arrangement, scope: list[Placed], budget: Budget) -> float:
        search = Search(arrangement, scope, list(arrangement.room.nodes), budget, all_splits=True)
        search.run()
        explain(arrangement, scope, None)
        if search.open_worth is None or search.open_worth <= 0:
            return 0.0
        return max(0.0, 1 - search.best_worth / search.open_worth)


def movable(arrangement: Arrangement) -> list[Placed]:
    """Jobs of whole GPUs that may be put anywhere: not yet running where they are, or free to move."""
    found = []
    for job, placed in arrangement.wanted.items():
        place = arrangement.places.get(job)
        if place is not None and (place.share is not None or place.gpus != placed.grant.n):
            continue
        if not arrangement.need(placed).gpus or placed.view.pinned:
            continue
        if (
            place is None
            or place != placed.view.allocation
            or (arrangement.may_move(placed.view) and arrangement.on_open_ground(place))
        ):
            found.append(placed)
    return found


def gap_to_best(arrangement: Arrangement) -> float:
    """How far the layout is at most from the optimum: no job can be worth more than at its best."""
    worth = arrangement.worth
    best = sum(worth.at_best(placed) for placed in arrangement.wanted.values())
    have = sum(worth.of(arrangement.wanted[job], place) for job, place in arrangement.places.items())
    return max(0.0, 1 - have / best) if best > 0 else 0.0
