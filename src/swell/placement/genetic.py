"""Genetic search over the order in which jobs choose their place, and over which jobs stay.

An individual gives each job a random key and a flag for staying. Jobs with the flag stay; the others choose their place
by best fit in the order of their keys. Fitness is first which jobs have a place, then the objective. Starts from what
`consolidated` would do and never returns less. Seeded by the generator handed in; bounded by generations × population
evaluations. (After Bean, "Genetic algorithms and random keys for sequencing and optimization", 1994.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from swell.core.decision import Layout
from swell.core.ids import JobId
from swell.core.resources import Allocation
from swell.core.snapshot import Snapshot
from swell.placement.arrange import Arrangement
from swell.placement.branch_and_bound import gap_to_best, movable
from swell.placement.consolidated import Consolidated
from swell.placement.objective import PER_FRAGMENT, is_move
from swell.placement.search import Budget, explain
from swell.ports import Placed, Random

POPULATION = 12
GENERATIONS = 12
MAX_JOBS = 48
MUTATION = 0.15


@dataclass(frozen=True, slots=True)
class Gene:
    key: float
    stays: bool


Genome = tuple[Gene, ...]
Fitness = tuple[int, float]


class Genetic:
    """`timer`: see `BranchAndBound`."""

    name = "genetic"

    def __init__(self, generations: int = GENERATIONS, timer: Callable[[], Callable[[], bool]] | None = None) -> None:
        self._generations = generations
        self._timer = timer
        self._start = Consolidated()

    def place(self, snapshot: Snapshot, wanted: Sequence[Placed], rng: Random) -> Layout:
        return self._start.improved(snapshot, wanted, partial(self._search, rng))

    def _search(self, rng: Random, arrangement: Arrangement) -> float:
        scope = movable(arrangement)[:MAX_JOBS]
        budget = Budget(POPULATION * (self._generations + 1), self._timer() if self._timer else None)
        Evolution(arrangement, scope, rng, budget).run()
        explain(arrangement, scope, None)
        return gap_to_best(arrangement)


class Evolution:
    def __init__(self, arrangement: Arrangement, scope: Sequence[Placed], rng: Random, budget: Budget) -> None:
        self._a = arrangement
        self._scope = list(scope)
        self._rng = rng
        self._budget = budget
        self._start = {p.view.id: arrangement.places[p.view.id] for p in scope if p.view.id in arrangement.places}
        self._moves = arrangement.snapshot.options.max_moves
        self._best: tuple[Fitness, dict[JobId, Allocation]] = (self._fitness(), dict(self._start))

    def run(self) -> None:
        """Leaves the arrangement with the best layout found."""
        if len(self._scope) > 1:
            self._evolve()
        self._apply(self._best[1])

    def _evolve(self) -> None:
        people = [self._born() for _ in range(POPULATION)]
        ranked = self._rank(people)
        while self._budget.left > 0 and ranked:
            parents = [genome for _, genome in ranked[: POPULATION // 2]]
            children = [self._child(self._choose(parents), self._choose(parents)) for _ in range(POPULATION)]
            ranked = sorted([*ranked[:2], *self._rank(children)], key=lambda f: f[0], reverse=True)[:POPULATION]

    def _rank(self, people: Sequence[Genome]) -> list[tuple[Fitness, Genome]]:
        alive = [(fitness, genome) for genome in people if (fitness := self._try(genome)) is not None]
        return sorted(alive, key=lambda f: f[0], reverse=True)

    def _born(self) -> Genome:
        return tuple(Gene(self._rng.random(), self._rng.random() < 0.7) for _ in self._scope)

    def _choose(self, parents: Sequence[Genome]) -> Genome:
        return parents[self._rng.randrange(len(parents))]

    def _child(self, one: Genome, other: Genome) -> Genome:
        genes = [a if self._rng.random() < 0.5 else b for a, b in zip(one, other, strict=True)]
        return tuple(
            Gene(self._rng.random(), self._rng.random() < 0.7) if self._rng.random() < MUTATION else g for g in genes
        )

    def _try(self, genome: Genome) -> Fitness | None:
        """Fitness of the layout that this individual makes, or None if it is not allowed or the budget is used up."""
        if not self._budget.spend():
            return None
        self._clear()
        if not self._decode(genome):
            return None
        fitness = self._fitness()
        if fitness > self._best[0]:
            places = {p.view.id: self._a.places[p.view.id] for p in self._scope if p.view.id in self._a.places}
            self._best = (fitness, places)
        return fitness

    def _clear(self) -> None:
        for placed in self._scope:
            if placed.view.id in self._a.places:
                self._a.lift(placed)

    def _apply(self, places: dict[JobId, Allocation]) -> None:
        self._clear()
        for placed in self._scope:
            place = places.get(placed.view.id)
            if place is not None:
                self._a.put(placed, place)

    def _decode(self, genome: Genome) -> bool:
        choosing: list[tuple[float, Placed]] = []
        for gene, placed in zip(genome, self._scope, strict=True):
            held = placed.view.allocation
            runs = held is not None and held == self._start.get(placed.view.id)
            if gene.stays and runs and held is not None:
                self._a.put(placed, held)
            else:
                choosing.append((gene.key, placed))
        moves = 0
        for _, placed in sorted(choosing, key=lambda c: (c[0], c[1].view.id)):
            allocation = self._a.fit(placed)
            if allocation is not None:
                self._a.put(placed, allocation)
                moves += is_move(placed, allocation)
            elif placed.view.id in self._start:
                return False
        return moves <= self._moves

    def _fitness(self) -> Fitness:
        bits, worth = 0, 0.0
        for placed in self._scope:
            place = self._a.places.get(placed.view.id)
            bits = bits << 1 | (place is not None)
            worth += self._a.worth.of(placed, place) if place is not None else 0.0
        return bits, worth - PER_FRAGMENT * self._a.room.fragmentation()
