"""The default placer on cases that a person can check by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.core.decision import Layout, ReasonCode
from swell.core.job import GpuRequest, Launcher, Roles
from swell.core.resources import Allocation, GpuHealth, NodeCondition, Part, Share
from swell.core.snapshot import JobView, Snapshot
from swell.placement.consolidated import Consolidated
from swell.placement.room import Room, Topology
from swell.plan.explain import sentence
from swell.ports import Placed
from unit.placement.build import Law, breaches, node, nodes, rng, sharing, snap, view, want


def place(snapshot: Snapshot, wanted: list[Placed]) -> Layout:
    layout = Consolidated().place(snapshot, wanted, rng())
    assert not breaches(snapshot, wanted, layout)
    return layout


def where(layout: Layout, job: int) -> dict[str, int]:
    return {part.node: len(part.gpus) for part in layout.allocations[job].parts}


def test_a_job_goes_to_the_tightest_node_that_takes_it_whole() -> None:
    jobs = [view(1, 2)]
    assert where(place(snap(nodes(8, 2, 4), jobs), want(*jobs)), 1) == {"n2": 2}


def test_a_job_that_holds_its_grant_stays() -> None:
    jobs = [view(1, 2, at={"n1": [0, 1]}), view(2, 4)]
    layout = place(snap(nodes(8, 4), jobs), want(*jobs))
    assert layout.allocations[1] is jobs[0].allocation
    assert where(layout, 2) == {"n2": 4}
    assert not layout.moves


def test_a_job_larger_than_a_node_takes_the_fewest_nodes_largest_piece_first() -> None:
    jobs = [view(1, 10)]
    layout = place(snap(nodes(2, 4, 8), jobs), want(*jobs))
    assert [(p.node, len(p.gpus)) for p in layout.allocations[1].parts] == [("n3", 8), ("n1", 2)]


def test_a_job_over_several_nodes_stays_behind_one_switch_if_it_can() -> None:
    cluster = [node("a1", 4, rack="a"), node("b1", 4, rack="b"), node("b2", 4, rack="b")]
    jobs = [view(1, 8)]
    assert where(place(snap(cluster, jobs), want(*jobs)), 1) == {"b1": 4, "b2": 4}


def test_gpus_of_one_link_group_go_together() -> None:
    jobs = [view(1, 1, at={"n1": [0]}), view(2, 2)]
    layout = place(snap([node("n1", 4, groups=2)], jobs), want(*jobs))
    assert layout.allocations[2].parts[0].gpus == (2, 3)


def test_a_grown_job_keeps_its_gpus_and_its_node() -> None:
    jobs = [view(1, 2, at={"n2": [1, 2]}, sizes=(1, 2, 3))]
    layout = place(snap(nodes(4, 4), jobs), want((jobs[0], 3)))
    assert layout.allocations[1].parts[0].node == "n2"
    assert {1, 2} < set(layout.allocations[1].parts[0].gpus)


def test_a_shrunk_job_keeps_its_first_workers() -> None:
    jobs = [view(1, 8, at={"n2": [0, 1, 2, 3], "n1": [0, 1, 2, 3]}, sizes=(4, 5, 8))]
    assert where(place(snap(nodes(4, 4), jobs), want((jobs[0], 4))), 1) == {"n2": 4}
    assert [p.node for p in place(snap(nodes(4, 4), jobs), want((jobs[0], 5))).allocations[1].parts] == ["n2", "n1"]


@pytest.mark.parametrize("condition", [NodeCondition.CORDONED, NodeCondition.QUARANTINED])
def test_a_node_set_aside_keeps_what_runs_and_gets_nothing_new(condition: NodeCondition) -> None:
    cluster = [replace(node("n1", 4), condition=condition), node("n2", 2)]
    jobs = [view(1, 2, at={"n1": [0, 1]}), view(2, 2), view(3, 2)]
    layout = place(snap(cluster, jobs), want(*jobs))
    assert layout.allocations[1] == jobs[0].allocation
    assert where(layout, 2) == {"n2": 2}
    assert layout.unplaced[3].code is ReasonCode.CAPACITY
    assert layout.unplaced[3].detail == {"needs": 2, "free": 0}


def test_a_draining_node_is_left_with_a_reason_that_says_so() -> None:
    cluster = [replace(node("n1", 4), condition=NodeCondition.DRAINING), node("n2", 4)]
    jobs = [view(1, 2, at={"n1": [0, 1]})]
    layout = place(snap(cluster, jobs), want(*jobs))
    assert where(layout, 1) == {"n2": 2}
    assert layout.moves[0].why == "moved from n1 to n2: n1 is being drained, cost 6 s"
    assert layout.moves[0].workers == 2


def test_a_run_that_may_not_be_stopped_stays_even_on_a_draining_node() -> None:
    cluster = [replace(node("n1", 4), condition=NodeCondition.DRAINING), node("n2", 4)]
    jobs = [view(1, 2, at={"n1": [0, 1]}, pinned=True)]
    assert place(snap(cluster, jobs), want(*jobs)).allocations[1] == jobs[0].allocation


def test_a_job_whose_node_is_gone_is_put_elsewhere() -> None:
    jobs = [view(1, 2, at={"gone": [0, 1]}), view(2, 3, at={"gone": [2], "n1": [0, 1]})]
    layout = place(snap(nodes(4, 4), jobs), want(*jobs))
    assert where(layout, 2) == {"n1": 3}
    assert where(layout, 1) == {"n2": 2}


def test_gpus_of_others_and_unhealthy_ones_are_left_alone() -> None:
    n1 = node("n1", 4)
    gpus = (replace(n1.gpus[0], others=True), replace(n1.gpus[1], health=GpuHealth.DIRTY), *n1.gpus[2:])
    jobs = [view(1, 2), view(2, 1)]
    layout = place(snap([replace(n1, gpus=gpus)], jobs), want(*jobs))
    assert layout.allocations[1].parts[0].gpus == (2, 3)
    assert 2 in layout.unplaced


def test_node_labels_and_gpu_memory_select() -> None:
    cluster = [node("n1", 4, memory_mib=16000), node("n2", 4, memory_mib=40000, labels={"zone": "b"})]
    jobs = [
        view(1, 1, spec={"node_labels": {"zone": "b"}}),
        view(2, 2, gpus={"memory_mib": 32000}),
        view(3, 1, gpus={"memory_mib": 64000}),
        view(4, 1, spec={"node_labels": {"zone": "c"}}),
    ]
    layout = place(snap(cluster, jobs), want(*jobs))
    assert where(layout, 1) == {"n2": 1}
    assert where(layout, 2) == {"n2": 2}
    assert layout.unplaced[3].code is ReasonCode.MEMORY
    assert layout.unplaced[3].detail == {"what": "memory of one GPU (MiB)", "needs": 64000, "free": 40000}
    assert sentence(layout.unplaced[4]).endswith("at present (it may use nodes with zone=c)")


def test_a_job_is_put_only_on_nodes_that_it_names_and_that_run_its_image() -> None:
    no = "there is no podman or docker on it"
    cluster = [node("n1", 4, no_containers=no), node("n2", 2), node("n3", 1)]
    jobs = [
        view(1, 1, spec={"nodes": ("n3",)}),
        view(2, 1, spec={"nodes": ("n3",)}),
        view(3, 1, spec={"image": "busybox"}),
        view(4, 1, spec={"nodes": ("n1",), "image": "busybox"}),
    ]
    layout = place(snap(cluster, jobs), want(*jobs))
    assert (where(layout, 1), where(layout, 3)) == ({"n3": 1}, {"n2": 1})
    assert sentence(layout.unplaced[2]) == "needs 1 GPU, free for it: 0"
    assert sentence(layout.unplaced[4]).endswith("(it may use n1 that run containers)")


def test_processes_are_counted_by_launcher() -> None:
    cluster = [node("n1", 8, cpus=16)]
    spec = {"cpus": 3, "memory_mib": 1000}
    per_gpu = place(snap(cluster, [view(1, 4, spec=spec)]), want(view(1, 4, spec=spec)))
    assert (per_gpu.allocations[1].parts[0].cpus, per_gpu.allocations[1].parts[0].memory_mib) == (12, 4000)
    alone = view(1, 4, spec=spec, launcher=Launcher.SINGLE)
    assert place(snap(cluster, [alone]), want(alone)).allocations[1].parts[0].cpus == 3
    with_servers = view(1, 2, spec={**spec, "roles": Roles(servers=2)}, launcher=Launcher.PS)
    assert place(snap(cluster, [with_servers]), want(with_servers)).allocations[1].parts[0].cpus == 12


def test_cpus_decide_how_many_gpus_of_a_node_a_job_can_use() -> None:
    jobs = [view(1, 4, spec={"cpus": 4})]
    assert where(place(snap([node("n1", 8, cpus=8), node("n2", 2, cpus=8)], jobs), want(*jobs)), 1) == {
        "n1": 2,
        "n2": 2,
    }


def test_memory_keeps_a_job_out_with_numbers() -> None:
    jobs = [view(1, 1, spec={"memory_mib": 99999})]
    reason = place(snap(nodes(4), jobs), want(*jobs)).unplaced[1]
    assert reason.code is ReasonCode.MEMORY
    assert (reason.detail["needs"], reason.detail["free"]) == (99999, 65536)
    busy = [view(1, 1, at={"n1": [0]}, spec={"memory_mib": 60000}), view(2, 1, spec={"memory_mib": 9000})]
    reason = place(snap(nodes(4), busy), want(*busy)).unplaced[2]
    assert reason.code is ReasonCode.MEMORY
    assert reason.detail == {"what": "memory of one node (MiB)", "needs": 9000, "free": 65536 - 60000}


def cpu_only(job: int, cpus: int) -> JobView:
    request = GpuRequest(min=0, max=0)
    made = view(job, 1, spec={"cpus": cpus}, gpu_milli=0, launcher=Launcher.SINGLE, gpu_types=())
    return replace(made, spec=replace(made.spec, gpus=request))


def test_jobs_without_gpus_go_by_cpu_and_leave_gpu_nodes_alone() -> None:
    cluster = [node("gpu", 4, cpus=16), node("plain", 0, cpus=8)]
    jobs = [cpu_only(1, 6), cpu_only(2, 6), cpu_only(3, 20)]
    layout = place(snap(cluster, jobs), want(*jobs))
    assert where(layout, 1) == {"plain": 0}
    assert where(layout, 2) == {"gpu": 0}
    assert layout.unplaced[3].code is ReasonCode.MEMORY
    assert layout.unplaced[3].detail == {"what": "CPU of one node", "needs": 20, "free": 10}


def test_one_process_never_spans_nodes_and_takes_what_one_node_has() -> None:
    fixed = view(1, 6, launcher=Launcher.SINGLE)
    layout = place(snap(nodes(4, 4), [fixed]), want(fixed))
    assert layout.unplaced[1].code is ReasonCode.SHAPE
    assert layout.unplaced[1].detail == {"needs": 6, "largest": 4}
    elastic = view(1, 6, launcher=Launcher.SINGLE, sizes=(1, 2, 3, 4, 5, 6))
    assert where(place(snap(nodes(4, 4), [elastic]), want((elastic, 6))), 1) == {"n1": 4}


def test_a_running_job_that_cannot_grow_keeps_what_it_has() -> None:
    jobs = [
        view(1, 2, at={"n1": [0, 1]}, launcher=Launcher.SINGLE, sizes=(1, 2, 3)),
        view(2, 2, at={"n1": [2, 3]}, pinned=True),
    ]
    layout = place(snap(nodes(4), jobs), want((jobs[0], 3), jobs[1]))
    assert layout.allocations[1] == jobs[0].allocation


def test_one_that_has_no_place_never_blocks_those_behind_it() -> None:
    jobs = [view(1, 9), view(2, 4), view(3, 4)]
    layout = place(snap(nodes(4, 4), jobs), want(*jobs))
    assert layout.unplaced[1].code is ReasonCode.SHAPE
    assert where(layout, 2) == {"n1": 4}
    assert where(layout, 3) == {"n2": 4}


def test_when_not_all_fit_the_last_are_left_out() -> None:
    jobs = [view(1, 1), view(2, 1), view(3, 4)]
    layout = place(snap(nodes(4), jobs), want(*jobs))
    assert set(layout.unplaced) == {3}


def test_a_gpu_that_is_free_now_is_preferred_to_one_that_somebody_leaves() -> None:
    leaving = view(1, 2, at={"n1": [0, 1]}, stopping=True)
    jobs = [leaving, view(2, 2)]
    assert where(place(snap(nodes(2, 4), jobs), want(jobs[1])), 2) == {"n2": 2}


def test_of_one_node_the_gpus_that_are_free_now_are_taken_even_across_link_groups() -> None:
    leaving = view(1, 2, at={"n1": [0, 2]}, stopping=True)
    jobs = [leaving, view(2, 2)]
    layout = place(snap([node("n1", 4, groups=2)], jobs), want(jobs[1]))
    assert layout.allocations[2].parts[0].gpus == (1, 3)


def test_a_share_joins_the_gpu_with_the_least_memory_left_that_takes_it() -> None:
    cluster = [node("n1", 3, memory_mib=16000)]
    light, heavy = sharing(1, 2000, on=("n1", 0)), sharing(2, 9000, on=("n1", 1))
    for third, gpu in ((sharing(3, 4000), 1), (sharing(3, 12000), 0)):
        jobs = [light, heavy, third]
        assert place(snap(cluster, jobs), want(*jobs)).allocations[3].parts[0].gpus == (gpu,)


def test_a_share_joins_where_the_job_was_before() -> None:
    cluster = [node("n1", 1, memory_mib=16000), node("n2", 1, memory_mib=16000)]
    there = [sharing(1, 4000, on=("n1", 0)), sharing(2, 4000, on=("n2", 0))]
    for home in ("n1", "n2"):
        jobs = [*there, sharing(3, 4000, last_nodes=(home,))]
        assert place(snap(cluster, jobs), want(*jobs)).allocations[3].nodes == (home,)


def test_a_node_counts_as_broken_up_most_when_half_of_it_is_free() -> None:
    topology = Topology(nodes(4, 2))
    broken = [
        Room(topology, 1000, {"n1": [Part(node="n1", gpus=tuple(range(taken)))]}).fragmentation() for taken in range(5)
    ]
    assert broken == [0.0, 0.75, 1.0, 0.75, 0.0]
    assert Room(topology, 1000, {"n2": [Part(node="n2", gpus=(0,))]}).fragmentation() == 0.5


def test_shares_pack_by_memory_and_the_fourth_goes_elsewhere() -> None:
    cluster = [node("n1", 1, memory_mib=16000), node("n2", 1, memory_mib=16000)]
    jobs = [sharing(i, 5000) for i in (1, 2, 3, 4)]
    layout = place(snap(cluster, jobs), want(*jobs))
    assert [layout.allocations[i].nodes for i in (1, 2, 3, 4)] == [("n1",), ("n1",), ("n1",), ("n2",)]
    assert layout.allocations[1].share is not None
    assert layout.allocations[1].share.memory_mib == 5000


def test_shares_respect_utilisation_unless_overload_is_tolerated() -> None:
    def busy(job: int) -> JobView:
        v = sharing(job, 1000)
        return replace(v, spec=replace(v.spec, gpus=replace(v.spec.gpus, utilisation_milli=600)), gpu_milli=600)

    cluster = [node("n1", 2, memory_mib=16000)]
    jobs = [busy(1), busy(2)]
    apart = place(snap(cluster, jobs), want(*jobs))
    assert apart.allocations[1].parts[0].gpus != apart.allocations[2].parts[0].gpus
    together = place(snap(cluster, jobs, share_overload_milli=1200), want(*jobs))
    assert together.allocations[1].parts[0].gpus == together.allocations[2].parts[0].gpus


def test_a_share_of_a_gpu_of_unknown_memory_without_a_said_utilisation_is_the_whole_gpu() -> None:
    jobs = [sharing(1, 5000), sharing(2, 5000)]
    layout = place(snap(nodes(2), jobs), want(*jobs))
    assert layout.allocations[1].parts[0].gpus != layout.allocations[2].parts[0].gpus


def test_one_that_outgrows_its_share_goes_and_its_neighbours_stay() -> None:
    cluster = [node("n1", 1, memory_mib=16000), node("n2", 1, memory_mib=16000)]
    jobs = [sharing(i, 5000, on=("n1", 0)) for i in (1, 2)] + [sharing(3, 5000, on=("n1", 0), measured_mib=9900)]
    wanted = want(*jobs)
    layout = place(snap(cluster, jobs), wanted)
    assert layout.allocations[1] == jobs[0].allocation
    assert layout.allocations[2] == jobs[1].allocation
    assert layout.allocations[3].nodes == ("n2",)
    assert layout.allocations[3].share is not None
    assert layout.allocations[3].share.memory_mib == 9900
    assert layout.moves[0].why.startswith("moved from n1 to n2: it outgrew its 5000 MiB of the GPU and needs 9900 MiB")


def test_one_that_outgrows_its_share_beside_room_stays() -> None:
    cluster = [node("n1", 1, memory_mib=16000)]
    jobs = [sharing(1, 5000, on=("n1", 0)), sharing(2, 5000, on=("n1", 0), measured_mib=9900)]
    layout = place(snap(cluster, jobs), want(*jobs))
    assert layout.allocations[2] == jobs[1].allocation
    assert not layout.moves


def test_one_that_outgrew_its_share_and_has_nowhere_to_go_stops_rather_than_its_neighbours() -> None:
    cluster = [node("n1", 1, memory_mib=16000)]
    jobs = [sharing(1, 9900 - 4900, on=("n1", 0), measured_mib=9900), sharing(2, 9000, on=("n1", 0))]
    layout = place(snap(cluster, jobs), want(*jobs))
    assert layout.allocations.keys() == {2}
    assert layout.unplaced[1].detail == {"what": "memory of one GPU (MiB)", "needs": 9900, "free": 7000}


def test_a_run_that_may_not_be_stopped_outgrows_its_share_and_its_neighbour_goes() -> None:
    cluster = [node("n1", 1, memory_mib=16000), node("n2", 1, memory_mib=16000)]
    jobs = [sharing(1, 9000, on=("n1", 0)), sharing(2, 5000, on=("n1", 0), measured_mib=9900, pinned=True)]
    layout = place(snap(cluster, jobs), want(*jobs))
    assert layout.allocations[2] == jobs[1].allocation
    assert layout.allocations[1].nodes == ("n2",)


def test_less_measured_than_reserved_lets_another_in() -> None:
    cluster = [node("n1", 1, memory_mib=16000)]
    jobs = [sharing(1, 12000, on=("n1", 0), measured_mib=4000), sharing(2, 10000)]
    assert place(snap(cluster, jobs), want(*jobs)).allocations[2].nodes == ("n1",)


def test_more_gpus_on_two_nodes_are_not_taken_when_fewer_on_one_are_faster() -> None:
    """Granted 4, but only 3 and 1 are free together: three on one node do more."""
    jobs = [view(1, 1, at={"n1": [0]}, pinned=True), view(2, 3, at={"n2": [0, 1, 2]}, pinned=True)]
    slow = view(3, 4, sizes=(1, 2, 3, 4), speed=Law(per_node=0.6))
    assert where(place(snap(nodes(4, 4), [*jobs, slow]), want(*jobs, (slow, 4))), 3) == {"n1": 3}
    quick = view(3, 4, sizes=(1, 2, 3, 4), speed=Law(per_node=0.95))
    assert where(place(snap(nodes(4, 4), [*jobs, quick]), want(*jobs, (quick, 4))), 3) == {"n1": 3, "n2": 1}
    grows = view(3, 3, at={"n1": [1, 2, 3]}, sizes=(1, 2, 3, 4), speed=Law(per_node=0.6))
    layout = place(snap(nodes(4, 4), [*jobs, grows]), want(*jobs, (grows, 4)))
    assert layout.allocations[3] == grows.allocation


def test_a_run_on_two_nodes_moves_when_its_second_node_is_drained() -> None:
    cluster = [node("n1", 2), node("n2", 2, condition=NodeCondition.DRAINING), node("n3", 2)]
    jobs = [view(1, 4, at={"n1": [0, 1], "n2": [0, 1]})]
    layout = place(snap(cluster, jobs), want(*jobs))
    assert where(layout, 1) == {"n1": 2, "n3": 2}
    assert layout.moves[0].why.startswith("moved from n1, n2 to n1, n3: n2 is being drained")


def test_memory_that_others_use_on_a_gpu_is_not_given_away() -> None:
    crowded = node("n1", 1, memory_mib=16000)
    crowded = replace(crowded, gpus=(replace(crowded.gpus[0], others_memory_mib=9000),))
    cluster = [crowded, node("n2", 1, memory_mib=16000)]
    jobs = [view(1, 1, gpus={"memory_mib": 8000}), sharing(2, 7000), sharing(3, 1)]
    layout = place(snap(cluster, jobs), want(*jobs))
    assert where(layout, 1) == {"n2": 1}
    assert where(layout, 2) == {"n1": 1}
    assert 3 not in layout.allocations


def test_what_one_of_several_sharers_held_is_free_again_when_it_leaves() -> None:
    topology = Topology((node("n1", 1, memory_mib=16000),))
    room = Room(topology, 1000, {})
    first, second = (Share(memory_mib=6000, milli=400), Share(memory_mib=9000, milli=600))
    for share in (first, second):
        room.take(Allocation(parts=(Part(node="n1", gpus=(0,)),), gpu_type="gpu", share=share))
    shared = room.nodes["n1"].shared[0]
    assert not shared.takes(Share(memory_mib=6000, milli=300), 1000)
    room.give_back(Allocation(parts=(Part(node="n1", gpus=(0,)),), gpu_type="gpu", share=first))
    assert (shared.memory_mib, shared.milli, shared.jobs) == (9000, 600, 1)
    assert shared.takes(Share(memory_mib=7000, milli=400), 1000)
    assert not shared.takes(Share(memory_mib=7001, milli=400), 1000)
