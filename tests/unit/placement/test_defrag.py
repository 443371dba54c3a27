"""Moves: made when they pay or let a waiting job in, bounded, and said in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from swell.core.decision import Layout, ReasonCode
from swell.core.job import Launcher
from swell.core.snapshot import Snapshot
from swell.placement.consolidated import Consolidated
from swell.placement.search import Budget, _divide
from swell.ports import Placed
from unit.placement.build import Law, breaches, nodes, rng, snap, view, want

SINGLE = Launcher.SINGLE


def place(snapshot: Snapshot, wanted: list[Placed]) -> Layout:
    layout = Consolidated().place(snapshot, wanted, rng())
    assert not breaches(snapshot, wanted, layout)
    return layout


def where(layout: Layout, job: int) -> dict[str, int]:
    return {part.node: len(part.gpus) for part in layout.allocations[job].parts}


def test_a_job_over_two_nodes_comes_together_when_that_pays() -> None:
    jobs = [view(1, 2, at={"n1": [0], "n2": [0]}, speed=Law(per_node=1 / 1.18))]
    layout = place(snap(nodes(1, 1, 4), jobs), want(*jobs))
    assert where(layout, 1) == {"n3": 2}
    (move,) = layout.moves
    assert move.why == "moved from n1, n2 to n3: one node instead of two, est. +18 % speed, cost 6 s"
    assert move.gain == pytest.approx(0.18)
    assert (move.workers, move.cost_s, move.for_job) == (2, 6.0, None)


@pytest.mark.parametrize(
    "fields",
    [
        {"remaining_1_s": 30.0},  # about to end: a restart costs more than it brings
        {"restart_cost_s": 100_000.0},
        {"speed": Law(per_node=1.0)},  # no faster on one node
        {"migrated_s": 9_900.0},  # moved a moment ago
        {"changed_s": 9_995.0},  # started a moment ago
        {"pinned": True},
    ],
)
def test_an_unchanged_job_is_never_moved_when_that_does_not_pay(fields: dict[str, Any]) -> None:
    jobs = [view(1, 2, at={"n1": [0], "n2": [0]}, **fields)]
    layout = place(snap(nodes(1, 1, 4), jobs), want(*jobs))
    assert layout.allocations[1] == jobs[0].allocation
    assert not layout.moves


def test_two_jobs_that_span_the_same_two_nodes_untangle() -> None:
    jobs = [view(1, 4, at={"n1": [0, 1], "n2": [0, 1]}), view(2, 4, at={"n1": [2, 3], "n2": [2, 3]})]
    layout = place(snap(nodes(4, 4), jobs), want(*jobs))
    assert [len(layout.allocations[j].parts) for j in (1, 2)] == [1, 1]
    assert all(move.gain > 0 for move in layout.moves)


def test_the_cheapest_set_of_moves_lets_a_large_job_in() -> None:
    jobs = [
        view(1, 1, at={"n1": [0]}, restart_cost_s=50.0),
        view(2, 2, at={"n2": [0, 1]}, restart_cost_s=5.0),
        view(3, 1, at={"n3": [0]}, restart_cost_s=90.0),
        view(4, 4, launcher=SINGLE),
    ]
    layout = place(snap(nodes(4, 4, 4), jobs), want(*jobs))
    assert where(layout, 4) == {"n2": 4}
    (move,) = layout.moves
    assert (move.job, move.for_job, move.workers) == (2, 4, 2)
    assert "makes room for job 4, cost 5 s" in move.why


def test_only_as_many_tenants_go_as_the_large_job_needs() -> None:
    jobs = [view(i, 1, at={"n1": [i - 1]}) for i in (1, 2, 3)] + [
        view(4, 2, at={"n2": [0, 1]}),
        view(5, 2, launcher=SINGLE),
    ]
    layout = place(snap(nodes(4, 3), jobs), want(*jobs))
    assert len(layout.moves) == 1
    assert where(layout, 5) == {"n1": 2}


def test_of_the_tenants_of_a_node_the_cheapest_to_move_goes() -> None:
    costly, cheap = view(1, 1, at={"n1": [0]}, restart_cost_s=50.0), view(2, 1, at={"n1": [1]}, restart_cost_s=5.0)
    jobs = [costly, cheap, view(3, 3, launcher=SINGLE)]
    layout = place(snap(nodes(4, 1), jobs), want(*jobs))
    assert where(layout, 3) == {"n1": 3}
    assert [move.job for move in layout.moves] == [2]


@pytest.mark.parametrize("fields", [{"pinned": True}, {"migrated_s": 9_999.0}, {"changed_s": 9_999.0}])
def test_nobody_is_moved_for_another_who_may_not_be(fields: dict[str, Any]) -> None:
    jobs = [view(1, 1, at={"n1": [0]}, **fields), view(2, 1, at={"n2": [0]}, **fields), view(3, 4, launcher=SINGLE)]
    layout = place(snap(nodes(4, 4), jobs), want(*jobs))
    assert not layout.moves
    assert layout.unplaced[3].code is ReasonCode.FRAGMENTED
    assert layout.unplaced[3].detail == {"needs": 4, "free": 6, "largest": 3}


def test_never_more_moves_in_a_pass_than_allowed() -> None:
    jobs = [view(i, 1, at={f"n{i}": [0]}) for i in range(1, 9)] + [view(20 + i, 4, launcher=SINGLE) for i in range(4)]
    cluster = nodes(*[4] * 8)
    for allowed in range(4):
        layout = place(snap(cluster, jobs, max_moves=allowed), want(*jobs))
        assert len(layout.moves) <= allowed
        assert len(layout.unplaced) == 4 - min(allowed, 4)


def test_a_job_that_has_stopped_to_make_room_does_not_take_it_again() -> None:
    """Pass two of a defragmentation: the mover is on its way out, the large job still waits."""
    stopping = view(1, 1, at={"n1": [0]}, stopping=True)
    jobs = [stopping, view(2, 2, at={"n2": [0, 1]}), view(3, 4, launcher=SINGLE)]
    layout = place(snap(nodes(4, 4), jobs), want(*jobs))
    assert where(layout, 3) == {"n1": 4}
    assert where(layout, 1) == {"n2": 1}
    assert not layout.moves
    gone = [view(1, 1, last_nodes=("n1",)), *jobs[1:]]
    layout = place(snap(nodes(4, 4), gone), want(*gone))
    assert (where(layout, 3), where(layout, 1)) == ({"n1": 4}, {"n2": 1})


def test_moving_for_another_must_be_worth_more_than_it_costs() -> None:
    jobs = [view(1, 3, at={"n1": [0, 1, 2]}, restart_cost_s=1e7), view(2, 1, at={"n2": [0]}, restart_cost_s=1e7)]
    late = view(3, 4, launcher=SINGLE)
    layout = place(snap(nodes(4, 4, 3), [*jobs, late]), want(*jobs, late))
    assert where(layout, 2) in ({"n1": 1}, {"n3": 1})
    assert {move.job for move in layout.moves} == {2}


def test_a_budget_allows_exactly_as_many_evaluations_as_it_has() -> None:
    budget = Budget(left=3)
    assert [budget.spend() for _ in range(5)] == [True, True, True, False, False]
    assert not Budget(left=3, deadline=lambda: True).spend()


def test_a_job_is_divided_over_nodes_in_every_way_large_pieces_first() -> None:
    assert list(_divide((("a", 2), ("b", 3)), 4)) == [(("a", 2), ("b", 2)), (("a", 1), ("b", 3))]
    assert list(_divide((("a", 1), ("b", 1), ("c", 2)), 3)) == [(("a", 1), ("b", 1), ("c", 1))]
    assert list(_divide((("a", 1), ("b", 1)), 3)) == []
