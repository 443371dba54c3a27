"""A placement pass on 1,000 nodes with 8,000 GPUs and 4,000 running jobs: how long, and how many workers it moves."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest

from figures import record
from property.test_placement_quality import CASES, best_value, situation
from swell.core.decision import Layout
from swell.core.resources import Allocation, Node
from swell.core.snapshot import JobView, Snapshot
from swell.core.state import JobState
from swell.placement.consolidated import Consolidated
from swell.placement.objective import moved_workers, value
from swell.placement.registry import PLACERS, placer_named
from swell.ports import Placed
from unit.placement.build import Law, breaches, node, snap, view, want

pytestmark = pytest.mark.perf

NODES, PER_NODE, JOBS = 1000, 8, 4000
SIZES = [1] * 50 + [2] * 27 + [4] * 16 + [8] * 6 + [16] * 1
PASSES = 120
LAW = Law(per_node=0.85)


def cluster() -> tuple[Node, ...]:
    return tuple(node(f"n{i:04}", PER_NODE, rack=f"r{i // 20}", groups=2, memory_mib=40_000) for i in range(NODES))


def job(number: int, n: int) -> JobView:
    return view(number, n, sizes=tuple(range(1, 17)), speed=LAW)


def granted(jobs: list[tuple[JobView, int]]) -> list[Placed]:
    return want(*jobs)


def started(jobs: list[tuple[JobView, int]], layout: Layout) -> list[tuple[JobView, int]]:
    """The next moment: everything is where the layout put it; those without a place wait on."""
    after = []
    for v, n in jobs:
        place: Allocation | None = layout.allocations.get(v.id)
        if place is v.allocation:
            after.append((v, n))
            continue
        state = JobState.RUNNING if place else JobState.QUEUED
        after.append((replace(v, allocation=place, held_n=place.gpus if place else 0, state=state), n))
    return after


def churn(dice: random.Random, jobs: list[tuple[JobView, int]], number: int) -> list[tuple[JobView, int]]:
    """20 jobs end, 20 shrink, and 40 arrive or grow into what they leave."""
    picked = dice.sample(range(len(jobs)), 40)
    ends, shrinks = set(picked[:20]), set(picked[20:])
    left = [(v, max(1, n // 2) if at in shrinks else n) for at, (v, n) in enumerate(jobs) if at not in ends]
    free = NODES * PER_NODE - sum(n for _, n in left)
    for _ in range(40):
        n = dice.choice(SIZES)
        if n <= free and len(left) < JOBS:
            number += 1
            left.append((job(number, n), n))
            free -= n
    grown = [at for at in dice.sample(range(len(left)), 20) if left[at][0].held_n == left[at][1] < 16]
    for at in grown:
        if free > 0:
            left[at] = (left[at][0], left[at][1] + 1)
            free -= 1
    return left


def full_cluster(dice: random.Random) -> list[tuple[JobView, int]]:
    jobs: list[tuple[JobView, int]] = []
    free = NODES * PER_NODE
    while len(jobs) < JOBS:
        n = min(dice.choice(SIZES), free - (JOBS - len(jobs) - 1))
        jobs.append((job(len(jobs) + 1, n), n))
        free -= n
    return jobs


def picture(nodes: tuple[Node, ...], jobs: list[tuple[JobView, int]]) -> Snapshot:
    return snap(nodes, [v for v, _ in jobs])


def timed(placer: Consolidated, nodes: tuple[Node, ...], jobs: list[tuple[JobView, int]]) -> tuple[float, Layout]:
    snapshot, wanted = picture(nodes, jobs), granted(jobs)
    began = time.process_time()
    layout = placer.place(snapshot, wanted, random.Random(1))
    return time.process_time() - began, layout


def naive_repack(nodes: tuple[Node, ...], jobs: list[tuple[JobView, int]]) -> int:
    """Workers that a best fit decreasing from an empty cluster, blind to where jobs are, puts on another node."""
    blind = [(replace(v, allocation=None, held_n=0, last_nodes=()), n) for v, n in jobs]
    blind.sort(key=lambda pair: -pair[1])
    layout = Consolidated().place(picture(nodes, blind), granted(blind), random.Random(1))
    return sum(moved_workers(v.allocation, layout.allocations[v.id]) for v, _ in jobs if v.id in layout.allocations)


def test_a_pass_on_a_thousand_nodes() -> None:
    dice = random.Random(42)
    nodes, placer = cluster(), Consolidated()
    jobs = full_cluster(dice)
    first_s, layout = timed(placer, nodes, jobs)
    jobs = started(jobs, layout)
    idle = sorted(timed(placer, nodes, jobs)[0] for _ in range(30))
    took: list[float] = []
    moved = naive = unplaced = 0
    for number in range(PASSES):
        jobs = churn(dice, jobs, 10_000 + 100 * number)
        seconds, layout = timed(placer, nodes, jobs)
        took.append(seconds)
        unplaced += len(layout.unplaced)
        workers = [moved_workers(v.allocation, layout.allocations[v.id]) for v, n in jobs if v.held_n == n]
        moved += sum(workers)
        if number % 20 == 0:
            assert not breaches(picture(nodes, jobs), granted(jobs), layout)
            naive += 20 * naive_repack(nodes, jobs)
        jobs = started(jobs, layout)
    took.sort()
    record(
        "placement",
        {
            "pass_p50_ms": 1000 * took[len(took) // 2],
            "pass_p99_ms": 1000 * took[int(0.99 * len(took))],
            "pass_nothing_changed_ms": 1000 * idle[len(idle) // 2],
            "first_pass_4000_jobs_ms": 1000 * first_s,
            "moved_workers": moved,
            "naive_moved_workers": naive,
            "moves_of_naive": moved / naive,
            "left_without_a_place": unplaced,
        },
    )


def test_every_placer_on_a_thousand_nodes() -> None:
    """One pass of each with 40 ends and shrinks and as many arrivals; solvers stay within their budget of work."""
    dice = random.Random(42)
    nodes, jobs = cluster(), full_cluster(dice)
    jobs = started(jobs, timed(Consolidated(), nodes, jobs)[1])
    jobs = churn(dice, jobs, 10_000)
    snapshot, wanted = picture(nodes, jobs), granted(jobs)
    figures: dict[str, float] = {}
    for name in PLACERS:
        placer = placer_named(name)
        began = time.process_time()
        layout = placer.place(snapshot, wanted, random.Random(1))
        figures[f"pass_ms_{name}"] = 1000 * (time.process_time() - began)
        assert not breaches(snapshot, wanted, layout)
        if layout.gap is not None:
            figures[f"gap_{name}"] = layout.gap
    record("placement", figures)


def test_every_placer_against_the_optimum() -> None:
    """500 small clusters in use: the objective relative to the proven optimum."""
    cases = [situation(seed) for seed in range(CASES)]
    cases = [(snapshot, wanted) for snapshot, wanted in cases if wanted]
    best = [best_value(snapshot, wanted) for snapshot, wanted in cases]
    figures: dict[str, float] = {"optimum_cases": len(cases)}
    for name in PLACERS:
        placer = placer_named(name)
        began = time.process_time()
        layouts = [placer.place(snapshot, wanted, random.Random(0)) for snapshot, wanted in cases]
        took_s = time.process_time() - began
        of_best = [value(s, w, layout) / b for (s, w), layout, b in zip(cases, layouts, best, strict=True)]
        figures[f"optimum_mean_{name}"] = sum(of_best) / len(of_best)
        figures[f"optimum_worst_{name}"] = min(of_best)
        figures[f"optimum_found_{name}"] = sum(ratio > 1 - 1e-6 for ratio in of_best) / len(of_best)
        figures[f"small_pass_ms_{name}"] = 1000 * took_s / len(cases)
        gaps = [layout.gap for layout in layouts if layout.gap is not None]
        if gaps:
            figures[f"mean_gap_{name}"] = sum(gaps) / len(gaps)
    record("placement", figures)
