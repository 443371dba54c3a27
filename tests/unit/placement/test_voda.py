"""Cases in which VodaScheduler's placement hangs, overfills a node or crashes, each of which ends correctly here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.core.job import Launcher
from swell.placement.registry import PLACERS, placer_named
from unit.placement.build import breaches, nodes, rng, snap, view, want

all_placers = pytest.mark.parametrize("name", sorted(PLACERS))


@all_placers
@pytest.mark.parametrize(
    ("jobs", "sizes"),
    [
        ((6,), (4, 4)),  # the last fragment of a split job was recorded with its full size: 4 + 6
        ((6, 2), (4, 4)),  # these four spun forever
        ((6, 1), (4, 4)),
        ((6, 3, 3), (4, 4, 4)),
        ((12, 8, 4), (8, 8, 8)),
        ((8,), (4, 8)),  # unequal nodes: an 8-slot plan was named after a 4-GPU machine
        ((4, 8), (4, 8)),
        ((7, 5, 3, 1), (2, 6, 8)),
    ],
)
def test_split_jobs_and_unequal_nodes_end_and_never_overfill(
    name: str, jobs: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    views = [view(i + 1, n) for i, n in enumerate(jobs)]
    snapshot, wanted = snap(nodes(*sizes), views), want(*views)
    layout = placer_named(name).place(snapshot, wanted, rng())
    assert not breaches(snapshot, wanted, layout)
    assert {job: a.gpus for job, a in layout.allocations.items()} == {i + 1: n for i, n in enumerate(jobs)}


@all_placers
def test_a_shrunk_job_whose_last_node_vanished_is_placed(name: str) -> None:
    job = view(1, 6, at={"n1": [0, 1, 2, 3], "n2": [0, 1]}, sizes=(1, 2, 3, 4, 5, 6))
    snapshot, wanted = snap(nodes(4), [job]), want((job, 4))
    layout = placer_named(name).place(snapshot, wanted, rng())
    assert not breaches(snapshot, wanted, layout)
    assert layout.allocations[1].nodes == ("n1",)


@all_placers
def test_a_lost_node_that_changes_nobodys_count_still_moves_its_jobs(name: str) -> None:
    job = view(1, 2, at={"n2": [0, 1]})
    snapshot, wanted = snap(nodes(4), [job]), want(job)
    layout = placer_named(name).place(snapshot, wanted, rng())
    assert layout.allocations[1].nodes == ("n1",)
    assert layout.moves[0].why == "moved from n2 to n1: n2 is gone, cost 6 s"


@all_placers
def test_all_nodes_lost_leaves_everybody_out_with_a_reason(name: str) -> None:
    jobs = [view(1, 2, at={"n2": [0, 1]}), view(2, 1)]
    layout = placer_named(name).place(snap((), jobs), want(*jobs), rng())
    assert layout.unplaced.keys() == {1, 2}


@all_placers
def test_equal_jobs_never_swap_places(name: str) -> None:
    jobs = [view(i, 2, at={f"n{(i + 1) // 2}": [0, 1] if i % 2 else [2, 3]}) for i in range(1, 7)]
    snapshot = snap(nodes(4, 4, 4), jobs)
    layout = placer_named(name).place(snapshot, want(*jobs), rng())
    assert layout.allocations == {j.id: j.allocation for j in jobs}
    shuffled = replace(snapshot, jobs=tuple(reversed(jobs)))
    assert placer_named(name).place(shuffled, want(*reversed(jobs)), rng()).allocations == layout.allocations


@all_placers
def test_a_job_over_several_nodes_keeps_the_order_of_its_workers(name: str) -> None:
    job = view(1, 8, at={"n2": [0, 1, 2, 3], "n1": [0, 1, 2, 3]}, sizes=(8, 9))
    snapshot, wanted = snap(nodes(4, 4, 4), [job]), want((job, 9))
    layout = placer_named(name).place(snapshot, wanted, rng())
    assert layout.allocations[1].nodes[0] in ("n2", "n1")
    assert not breaches(snapshot, wanted, layout)
    assert sorted(len(part.gpus) for part in layout.allocations[1].parts) == [1, 4, 4]


@all_placers
def test_a_job_that_only_the_large_node_takes_gets_it_and_what_fits_elsewhere_leaves(name: str) -> None:
    small, large = view(1, 4, at={"n2": [0, 1, 2, 3]}), view(2, 8, launcher=Launcher.SINGLE)
    snapshot, wanted = snap(nodes(4, 8), [small, large]), want(small, large)
    layout = placer_named(name).place(snapshot, wanted, rng())
    assert not breaches(snapshot, wanted, layout)
    assert {job: a.nodes for job, a in layout.allocations.items()} == {1: ("n1",), 2: ("n2",)}
