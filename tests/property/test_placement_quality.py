"""How good the layouts are: against the exact optimum on small clusters, by the objective of `placement.objective`."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import pytest

from swell.core.decision import Layout
from swell.core.resources import Allocation, Part
from swell.core.snapshot import JobView, Snapshot
from swell.placement.arrange import Arrangement
from swell.placement.branch_and_bound import BranchAndBound, movable
from swell.placement.consolidated import Consolidated
from swell.placement.genetic import Genetic
from swell.placement.hungarian import Counts, concrete, relabelled, rename, repack
from swell.placement.objective import moved_workers, value
from swell.placement.registry import PLACERS, placer_named
from swell.ports import Placed
from unit.placement.build import Law, breaches, nodes, snap, view, want

CASES = 500
EXACT = BranchAndBound(evaluations=2_000_000)


def situation(seed: int, *, most_nodes: int = 4, most_jobs: int = 7) -> tuple[Snapshot, list[Placed]]:
    """A small cluster in use: jobs scattered at random, some with a new size, some new, all granted what exists."""
    dice = random.Random(seed)
    cluster = nodes(*[dice.choice([2, 4, 4, 8]) for _ in range(dice.randint(2, most_nodes))])
    free = [(n.name, g.index) for n in cluster for g in n.gpus]
    total = len(free)
    dice.shuffle(free)
    jobs: list[JobView] = []
    granted: list[tuple[JobView, int]] = []
    for job in range(1, dice.randint(2, most_jobs) + 1):
        n = dice.choice([1, 1, 2, 2, 3, 4, 6])
        if sum(g for _, g in granted) + n > total:
            continue
        runs = dice.random() < 0.6 and len(free) >= n
        made = view(
            job,
            n,
            at=_scatter(dice, free, n) if runs else None,
            sizes=tuple(range(1, 9)),
            speed=Law(per_node=dice.choice([0.95, 0.85, 0.7])),
            remaining_1_s=dice.choice([60.0, 3600.0, 36000.0]),
            restart_cost_s=dice.choice([2.0, 6.0, 30.0]),
        )
        resized = dice.random() < 0.3 and sum(g for _, g in granted) + n + 1 <= total
        jobs.append(made)
        granted.append((made, n + resized))
    return snap(cluster, jobs), want(*granted)


def _scatter(dice: random.Random, free: list[tuple[str, int]], n: int) -> dict[str, list[int]]:
    """Mostly on one node where there is one, else wherever."""
    if dice.random() < 0.7:
        names = [name for name, _ in free]
        whole = [name for name in sorted(set(names)) if names.count(name) >= n]
        if whole:
            name = dice.choice(whole)
            free.sort(key=lambda g: g[0] != name)
    at: dict[str, list[int]] = {}
    for name, gpu in [free.pop(0) for _ in range(n)]:
        at.setdefault(name, []).append(gpu)
    return {name: sorted(gpus) for name, gpus in sorted(at.items())}


def best_value(snapshot: Snapshot, wanted: list[Placed]) -> float:
    layout = EXACT.place(snapshot, wanted, random.Random(0))
    assert layout.gap in (0.0, None), "the search was not complete"
    assert not breaches(snapshot, wanted, layout)
    return value(snapshot, wanted, layout)


def split_jobs(snapshot: Snapshot, layout: Layout) -> int:
    largest = max(len(n.gpus) for n in snapshot.nodes)
    return sum(1 for a in layout.allocations.values() if len(a.parts) > 1 and a.gpus <= largest)


def test_consolidated_is_within_three_percent_of_the_optimum_on_average() -> None:
    ratios = []
    for seed in range(CASES):
        snapshot, wanted = situation(seed)
        if not wanted:
            continue
        got = value(snapshot, wanted, Consolidated().place(snapshot, wanted, random.Random(0)))
        ratios.append(got / best_value(snapshot, wanted))
    assert len(ratios) > 0.95 * CASES
    assert sum(ratios) / len(ratios) >= 0.97


def fresh(seed: int) -> tuple[Snapshot, list[Placed]]:
    """The same clusters with nothing running: every job has to be put somewhere."""
    snapshot, wanted = situation(seed)
    views = [replace(p.view, allocation=None, held_n=0, last_nodes=()) for p in wanted]
    jobs = [(v, p.grant.n) for v, p in zip(views, wanted, strict=True)]
    return replace(snapshot, jobs=tuple(views)), want(*jobs)


def test_jobs_that_fit_one_node_are_on_one_node_whenever_the_exact_solver_could() -> None:
    worse = []
    for seed in range(200):
        snapshot, wanted = fresh(seed)
        if not wanted:
            continue
        mine = split_jobs(snapshot, Consolidated().place(snapshot, wanted, random.Random(0)))
        exact = split_jobs(snapshot, EXACT.place(snapshot, wanted, random.Random(0)))
        if mine > exact:
            worse.append((seed, mine, exact))
    assert not worse


def test_the_exact_solver_agrees_with_trying_everything() -> None:
    for seed in range(60):
        snapshot, wanted = situation(1000 + seed, most_nodes=2, most_jobs=3)
        if not wanted:
            continue
        assert best_value(snapshot, wanted) == pytest.approx(max(_all_values(snapshot, wanted)), rel=1e-9), seed


def _all_values(snapshot: Snapshot, wanted: Sequence[Placed]) -> Iterator[float]:
    """Values of every layout in which everybody has a place: counts on nodes, then held GPUs if the counts are."""
    size = {n.name: len(n.gpus) for n in snapshot.nodes}
    ways = [_ways(p, size) for p in wanted]
    for choice in product(*ways):
        used = {name: sum(counts[name] for counts in choice) for name in size}
        if all(used[name] <= size[name] for name in size):
            places = {p.view.id: _shape(p, counts) for p, counts in zip(wanted, choice, strict=True)}
            if _held_apart(wanted, places):
                yield value(snapshot, wanted, Layout(allocations=places))


def _ways(placed: Placed, size: dict[str, int]) -> list[dict[str, int]]:
    every = product(*[range(k + 1) for k in size.values()])
    return [dict(zip(size, counts, strict=True)) for counts in every if sum(counts) == placed.grant.n]


def _shape(placed: Placed, counts: dict[str, int]) -> Allocation:
    held = placed.view.allocation
    if held is not None and {p.node: len(p.gpus) for p in held.parts} == {n: k for n, k in counts.items() if k}:
        return held
    parts = tuple(Part(node=n, gpus=tuple(range(100, 100 + k))) for n, k in counts.items() if k)
    return Allocation(parts=parts, gpu_type="gpu")


def _held_apart(wanted: Sequence[Placed], places: dict[int, Allocation]) -> bool:
    moves = sum(1 for p in wanted if p.view.held_n == p.grant.n and places[p.view.id] != p.view.allocation)
    return moves <= 8


def test_hungarian_never_moves_more_workers_than_a_naive_relabelling() -> None:
    fewer = 0
    for seed in range(300):
        snapshot, wanted = situation(seed)
        arrangement = Consolidated().arrange(snapshot, wanted)
        if not isinstance(arrangement, Arrangement):
            continue
        scope = [p for p in movable(arrangement) if p.view.id in arrangement.places]
        packed = repack(arrangement, scope)
        if packed is None:
            continue
        names = relabelled(arrangement, scope, packed)
        naive = _moved(arrangement, scope, packed, {name: name for name in names})
        best = _moved(arrangement, scope, packed, names)
        assert best <= naive, seed
        fewer += best < naive
    assert fewer > 20


def _moved(arrangement: Arrangement, scope: list[Placed], packed: Counts, names: dict[str, str]) -> int:
    places = concrete(arrangement, scope, rename(packed, names))
    assert places is not None
    for placed in scope:
        arrangement.lift(placed)
    return sum(moved_workers(p.view.allocation, places[p.view.id]) for p in scope)


@pytest.mark.parametrize("name", ["hungarian", "genetic", "branch-and-bound"])
def test_solvers_are_never_worse_than_consolidated(name: str) -> None:
    for seed in range(60):
        snapshot, wanted = situation(seed)
        start = value(snapshot, wanted, Consolidated().place(snapshot, wanted, random.Random(0)))
        layout = placer_named(name).place(snapshot, wanted, random.Random(0))
        assert value(snapshot, wanted, layout) >= start - 1e-9
        assert not breaches(snapshot, wanted, layout)


@pytest.mark.parametrize("make", [lambda t: BranchAndBound(timer=t), lambda t: Genetic(timer=t)])
def test_solvers_stop_when_the_time_is_up_and_report_the_gap(make: object) -> None:
    snapshot, wanted = situation(11)
    asked = 0

    def timer() -> object:
        def up() -> bool:
            nonlocal asked
            asked += 1
            return asked > 3

        return up

    layout = make(timer).place(snapshot, wanted, random.Random(0))  # type: ignore[operator]
    assert asked <= 40
    assert layout.gap is not None
    assert 0 <= layout.gap < 1
    assert not breaches(snapshot, wanted, layout)


def test_the_gap_that_is_reported_holds() -> None:
    for seed in range(40):
        snapshot, wanted = situation(seed)
        for placer in (BranchAndBound(evaluations=30), Genetic(generations=1)):
            layout = placer.place(snapshot, wanted, random.Random(0))
            if layout.gap is not None:
                optimum = best_value(snapshot, wanted)
                assert value(snapshot, wanted, layout) >= optimum * (1 - layout.gap) - 0.01 * optimum


def test_every_placer_is_listed_under_its_name() -> None:
    assert all(placer_named(name).name == name for name in PLACERS)
