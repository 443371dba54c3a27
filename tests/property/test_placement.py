"""Laws of placement, for every placer: one suite, random clusters, two passes with a change between them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from swell.core.decision import Grant, Layout
from swell.core.job import Launcher
from swell.core.resources import GpuHealth, Node, NodeCondition
from swell.core.snapshot import JobView, Options, Snapshot, capacity_of
from swell.core.state import JobState
from swell.placement.objective import is_move
from swell.placement.registry import PLACERS, placer_named
from swell.plan.cycle import cycle
from swell.policy.elastic_fifo import ElasticFifo
from swell.ports import Placed
from unit.placement.build import Law, breaches, node, sharing, view

QUICK = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
LAUNCHERS = (Launcher.SINGLE, Launcher.PER_GPU, Launcher.PER_NODE, Launcher.TORCHRUN)
KINDS = ("whole", "whole", "whole", "share", "cpu")
all_placers = pytest.mark.parametrize("name", sorted(PLACERS))


@dataclass(frozen=True)
class Case:
    """A cluster before and after something happened to it, jobs, and what each is granted before and after."""

    before: tuple[Node, ...]
    after: tuple[Node, ...]
    jobs: tuple[JobView, ...]
    first: tuple[int, ...]
    second: tuple[int, ...]
    options: Options


def cases() -> st.SearchStrategy[Case]:
    """Cases made from a seed: much quicker than drawing each field, and as reproducible."""
    return st.integers(0, 2**32).map(lambda seed: make_case(random.Random(seed)))


def make_case(dice: random.Random) -> Case:
    before = tuple(make_node(dice, i) for i in range(dice.randint(1, 5)))
    jobs = tuple(make_job(dice, i) for i in range(1, dice.randint(1, 9) + 1))
    after = tuple(happens(dice, n) for n in before if dice.random() < 0.9)
    first = tuple(dice.choice((0, *j.sizes)) for j in jobs)
    second = tuple(n if dice.random() < 0.6 else dice.choice((0, *j.sizes)) for n, j in zip(first, jobs, strict=True))
    options = Options(max_moves=dice.randint(0, 8), share_overload_milli=dice.choice([1000, 1200]))
    return Case(before, after, jobs, first, second, options)


def make_node(dice: random.Random, i: int) -> Node:
    return node(
        f"n{i}",
        dice.randint(0, 8),
        memory_mib=dice.choice([0, 16000, 40000]),
        cpus=dice.randint(1, 20),
        groups=dice.choice([1, 2]),
        rack=dice.choice(["", "a", "b"]),
        labels=dice.choice([{}, {"zone": "b"}]),
        type=dice.choice(["gpu", "gpu", "big"]),
        realm=dice.choice(["", "", "lab"]),
        no_containers=dice.choice(["", "", "there is no runtime"]),
    )


def make_job(dice: random.Random, job: int) -> JobView:
    kind = dice.choice(KINDS)
    if kind == "share":
        return replace(sharing(job, dice.randint(1, 9) * 1000), gpu_types=("big", "gpu"))
    most = dice.randint(1, 12)
    labels: dict[str, str] = dice.choice([{}, {}, {"zone": "b"}])
    spec = {"cpus": dice.randint(0, 3), "memory_mib": dice.choice([0, 0, 20000]), "node_labels": labels}
    spec |= {"nodes": dice.choice([(), (), ("n0",), ("n1", "n2")]), "image": dice.choice(["", "", "busybox"])}
    fields: dict[str, Any] = {"sizes": tuple(range(1, most + 1)) if dice.random() < 0.5 else (most,)}
    if kind == "cpu":
        fields = {"gpu_milli": 0, "sizes": (1,), "gpu_types": ()}
    return view(
        job,
        most,
        launcher=Launcher.SINGLE if kind == "cpu" else dice.choice(LAUNCHERS),
        spec=spec,
        gpus={"memory_mib": dice.choice([0, 0, 30000])} if kind == "whole" else None,
        speed=Law(per_node=dice.choice([1.0, 0.9, 0.6])),
        remaining_1_s=dice.choice([10.0, 1000.0, 1e6]),
        restart_cost_s=dice.choice([0.0, 6.0, 60.0]),
        **fields,
    )


CONDITIONS = [NodeCondition.READY] * 5 + [NodeCondition.CORDONED, NodeCondition.DRAINING, NodeCondition.QUARANTINED]


def happens(dice: random.Random, n: Node) -> Node:
    healths = [GpuHealth.OK] * 6 + [GpuHealth.DIRTY]
    gpus = tuple(replace(g, health=dice.choice(healths), others=dice.random() < 0.1) for g in n.gpus)
    return replace(n, gpus=gpus, condition=dice.choice(CONDITIONS))


def snapshot(case: Case, cluster: tuple[Node, ...], jobs: tuple[JobView, ...]) -> Snapshot:
    capacity = capacity_of(cluster)
    return Snapshot(now_s=5000.0, jobs=jobs, nodes=cluster, capacity=capacity, options=case.options)


def granted(jobs: tuple[JobView, ...], sizes: tuple[int, ...]) -> list[Placed]:
    pairs = [(j, n) for j, n in zip(jobs, sizes, strict=True) if n]
    return [Placed(view=j, grant=Grant(n=n, gpu_type=_type(j))) for j, n in pairs]


def _type(job: JobView) -> str:
    if not job.gpu_milli:
        return ""
    return ("gpu", "big")[job.id % 2]


def running(job: JobView, layout: Layout, pinned: bool = False) -> JobView:
    allocation = layout.allocations.get(job.id)
    if allocation is None:
        return job
    n = allocation.gpus if allocation.gpus and not allocation.share else 1
    return replace(job, allocation=allocation, held_n=n, state=JobState.RUNNING, pinned=pinned)


def two_passes(name: str, case: Case) -> tuple[Snapshot, list[Placed], Layout, tuple[JobView, ...]]:
    empty = snapshot(case, case.before, case.jobs)
    wanted = granted(case.jobs, case.first)
    layout = placer_named(name).place(empty, wanted, random.Random(3))
    assert not breaches(empty, wanted, layout)
    jobs = tuple(running(j, layout, pinned=not j.id % 4) for j in case.jobs)
    # a run that may not be stopped keeps exactly what it holds; that is the policy layers' law
    sizes = tuple(j.held_n if j.pinned and j.held_n else n for j, n in zip(jobs, case.second, strict=True))
    then = snapshot(case, case.after, jobs)
    wanted = granted(jobs, sizes)
    return then, wanted, placer_named(name).place(then, wanted, random.Random(3)), jobs


@all_placers
@given(case=cases())
@QUICK
def test_never_oversubscribed_and_never_newly_on_a_node_set_aside(name: str, case: Case) -> None:
    then, wanted, layout, _ = two_passes(name, case)
    assert not breaches(then, wanted, layout)


@all_placers
@example(case=make_case(random.Random(132609)))  # a GPU of a job that spans two nodes breaks, and nothing may move
@given(case=cases())
@QUICK
def test_moves_are_few_explained_and_never_of_a_run_that_may_not_be_stopped(name: str, case: Case) -> None:
    then, wanted, layout, jobs = two_passes(name, case)
    moved = {p.view.id for p in wanted if p.view.id in layout.allocations and is_move(p, layout.allocations[p.view.id])}
    assert moved == {move.job for move in layout.moves}
    assert all(move.why.startswith("moved from ") and move.cost_s >= 0 for move in layout.moves)
    assert not moved & {j.id for j in jobs if j.pinned and j.held_n}
    there = {n.name: n for n in then.nodes}
    forced = {
        j.id
        for j in jobs
        if j.allocation
        for part in j.allocation.parts
        if part.node not in there or there[part.node].condition is NodeCondition.DRAINING
    }
    assert len(moved - forced) <= case.options.max_moves


@all_placers
@given(case=cases())
@QUICK
def test_the_same_input_gives_the_same_layout(name: str, case: Case) -> None:
    assert two_passes(name, case)[2] == two_passes(name, case)[2]


@all_placers
@given(case=cases())
@QUICK
def test_a_layout_that_was_made_is_kept(name: str, case: Case) -> None:
    """Nothing changed: nothing moves. (A second pass of a solver may still find moves that pay, not others.)"""
    then, wanted, layout, jobs = two_passes(name, case)
    settled = {j.id: running(replace(j, allocation=None, held_n=0), layout) for j in jobs}
    steady = {n.name for n in then.nodes if n.condition is not NodeCondition.DRAINING}
    pairs = [(settled[p.view.id], p.grant) for p in wanted if settled[p.view.id].held_n == p.grant.n]
    kept = [Placed(view=v, grant=g) for v, g in pairs if v.allocation and steady.issuperset(v.allocation.nodes)]
    again = placer_named(name).place(replace(then, jobs=tuple(settled.values())), kept, random.Random(3))
    moves = {move.job: move for move in again.moves}
    for placed in kept:
        if again.allocations.get(placed.view.id) != placed.view.allocation:
            move = moves[placed.view.id]
            assert move.gain > 0 or move.for_job or "closer" in move.why, move


@all_placers
@given(case=cases())
@QUICK
def test_the_cycle_never_starts_what_is_still_held(name: str, case: Case) -> None:
    then, _, _, jobs = two_passes(name, case)
    plan = cycle(then, ElasticFifo(), placer_named(name), {}, random.Random(3))
    held = {
        (part.node, gpu): j.id
        for j in jobs
        if j.allocation and not j.allocation.share
        for part in j.allocation.parts
        for gpu in part.gpus
    }
    for start in plan.starts:
        assert not [g for part in start.allocation.parts for g in part.gpus if (part.node, g) in held]
    assert not {s.job for s in plan.starts} & {s.job for s in plan.stops}
