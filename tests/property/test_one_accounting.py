"""One accounting: whoever asks what fits where (admission, policies, placers, reconcile) gets the same answer."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from swell.core.capacity import cpus_of, processes_of
from swell.core.containers import UNCONTAINED
from swell.core.decision import Grant
from swell.core.errors import Infeasible
from swell.core.events import JobSubmitted, NodeObserved
from swell.core.job import GpuRequest, JobSpec, Launcher, Roles
from swell.core.lifecycle import replay
from swell.core.resources import Allocation, Gpu, Node
from swell.core.snapshot import JobView, Options, Snapshot, capacity_of
from swell.placement.consolidated import Consolidated
from swell.placement.room import open_room
from swell.plan.admit import check_feasible
from swell.plan.reconcile import Held
from swell.plan.snapshotter import Snapshotter
from swell.policy.bundles import Stock
from swell.ports import Placed
from swell.speed.book import Book

TYPES = ("A100", "T4")
gpus = st.builds(
    lambda count, kind, memory_mib, others_mib: tuple(
        Gpu(index=i, type=kind, memory_mib=memory_mib, others_memory_mib=min(others_mib, memory_mib))
        for i in range(count)
    ),
    st.integers(0, 4),
    st.sampled_from(TYPES),
    st.sampled_from((0, 8_000, 16_000)),
    st.sampled_from((0, 0, 4_000)),
)
nodes = st.lists(
    st.builds(
        Node,
        name=st.just("n"),
        gpus=gpus,
        cpus=st.integers(1, 8),
        memory_mib=st.sampled_from((4_000, 64_000)),
        labels=st.sampled_from(({}, {"zone": "x"})),
        no_containers=st.sampled_from(("", "", "there is no runtime")),
    ),
    min_size=1,
    max_size=3,
).map(lambda found: tuple(replace(node, name=f"n{i}") for i, node in enumerate(found)))


@st.composite
def specs(draw: st.DrawFn) -> JobSpec:
    kind = draw(st.sampled_from(("whole", "whole", "shared", "none")))
    low = {"whole": draw(st.integers(1, 4)), "shared": 1, "none": 0}[kind]
    request = GpuRequest(
        min=low,
        max=low,
        types=draw(st.sampled_from(((), (), ("A100",)))),
        exclude=draw(st.sampled_from(((), ("T4",)))),
        memory_mib=draw(st.sampled_from((0, 6_000, 12_000))),
        share=kind == "shared",
        utilisation_milli=draw(st.sampled_from((0, 300))) if kind == "shared" else 0,
    )
    launcher = draw(st.sampled_from(list(Launcher)))
    roles = draw(st.sampled_from((None, Roles(servers=2)))) if launcher is Launcher.PS else None
    return JobSpec(
        name="j",
        command=("true",),
        gpus=request,
        cpus=draw(st.integers(1, 3)),
        memory_mib=draw(st.sampled_from((0, 1_000, 3_000))),
        node_labels=draw(st.sampled_from(({}, {"zone": "x"}))),
        nodes=draw(st.sampled_from(((), (), ("n0",), ("n1", "n2")))),
        image="" if launcher in UNCONTAINED else draw(st.sampled_from(("", "", "busybox"))),
        launcher=launcher,
        roles=roles,
    )


def idle(cluster: tuple[Node, ...]) -> tuple[Node, ...]:
    """Nobody else's memory on any GPU: what admission goes by."""
    return tuple(replace(node, gpus=tuple(replace(gpu, others_memory_mib=0) for gpu in node.gpus)) for node in cluster)


def taken(spec: JobSpec, cluster: tuple[Node, ...]) -> Snapshot:
    events = [NodeObserved(node=node, at_s=1.0) for node in cluster]
    state = replay([*events, JobSubmitted(job=1, spec=spec, at_s=1.0)])
    return Snapshotter(Book()).take(state, 2.0, Options())[0]


def places(snapshot: Snapshot) -> list[Allocation]:
    """Where the default placer puts the job at its minimum, by GPU type."""
    (view,) = snapshot.jobs
    types = view.gpu_types if view.gpu_milli else ("",)
    found: list[Allocation] = []
    for gpu_type in types:
        wanted = [Placed(view=view, grant=Grant(n=view.min, gpu_type=gpu_type))]
        found += Consolidated().place(snapshot, wanted, random.Random(0)).allocations.values()
    return found


@given(spec=specs(), cluster=nodes)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_a_job_is_admitted_if_and_only_if_the_placer_finds_it_a_place_on_idle_nodes(
    spec: JobSpec, cluster: tuple[Node, ...]
) -> None:
    snapshot = taken(spec, idle(cluster))
    try:
        check_feasible(spec, cluster)
    except Infeasible:
        assert not places(snapshot)
    else:
        assert places(snapshot)


@given(spec=specs(), cluster=nodes)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_what_a_policy_counts_of_a_job_is_what_the_placer_gives_it(spec: JobSpec, cluster: tuple[Node, ...]) -> None:
    snapshot = taken(spec, cluster)
    (view,) = snapshot.jobs
    for place in places(snapshot):
        assume(spec.launcher is not Launcher.PER_NODE or len(place.parts) == 1)  # one more per further node
        processes = processes_of(spec, view.min)
        assert sum(part.cpus for part in place.parts) == processes * spec.cpus
        assert sum(part.memory_mib for part in place.parts) == processes * spec.memory_mib
        stock = Stock(snapshot.capacity)
        assert stock.admit(view, view.min) is not None
        assert snapshot.capacity.cpus - stock.cpus == processes * spec.cpus


@given(cluster=nodes)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_policies_and_placers_share_out_the_same_cpus_and_memory(cluster: tuple[Node, ...]) -> None:
    rooms = [open_room(node) for node in cluster]
    capacity = capacity_of(cluster)
    assert capacity.cpus == sum(room.cpus for room in rooms) == sum(map(cpus_of, cluster))
    assert capacity.memory_mib == sum(room.memory_mib for room in rooms)


@given(first=specs(), second=specs(), cluster=nodes)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_what_the_placer_gives_beside_a_running_job_is_free_to_be_taken(
    first: JobSpec, second: JobSpec, cluster: tuple[Node, ...]
) -> None:
    snapshot = taken(first, cluster)
    for held in places(snapshot)[:1]:
        running = replace(snapshot.jobs[0], allocation=held, held_n=max(1, held.gpus))
        waiting = replace(taken(second, cluster).jobs[0], id=2)
        both = replace(snapshot, jobs=(running, waiting))
        wanted = [_as_held(running), *(_wanted(waiting))]
        layout = Consolidated().place(both, wanted, random.Random(0))
        if layout.allocations.get(1) == held and 2 in layout.allocations:
            assert Held(both).by_others(2, layout.allocations[2]) == ()


def _as_held(view: JobView) -> Placed:
    assert view.allocation is not None
    return Placed(view=view, grant=Grant(n=view.held_n, gpu_type=view.allocation.gpu_type))


def _wanted(view: JobView) -> list[Placed]:
    types = view.gpu_types if view.gpu_milli else ("",)
    return [Placed(view=view, grant=Grant(n=view.min, gpu_type=gpu_type)) for gpu_type in types[:1]]
