"""`Held` in plan.reconcile: nothing is given twice while its holder is still there."""

from __future__ import annotations

from dataclasses import replace

from swell.core.resources import Allocation, Part, Share
from swell.plan.reconcile import Held
from unit.placement.build import node, nodes, sharing, snap, view


def on(name: str, *gpus: int, cpus: int = 0, memory_mib: int = 0, share: Share | None = None) -> Allocation:
    return Allocation(
        parts=(Part(node=name, gpus=gpus, cpus=cpus, memory_mib=memory_mib),), gpu_type="gpu", share=share
    )


def test_a_gpu_is_blocked_by_who_holds_it() -> None:
    held = Held(snap(nodes(4), [view(1, 2, at={"n1": [0, 1]})]))
    assert held.by_others(2, on("n1", 1, 2)) == (1,)
    assert held.by_others(2, on("n1", 2, 3)) == ()
    assert held.by_others(1, on("n1", 0, 1, 2)) == ()
    held.take(2, on("n1", 2))
    assert held.by_others(3, on("n1", 2)) == (2,)


def test_cpus_and_memory_are_never_given_twice() -> None:
    running = view(1, 1, at={"n1": [0]}, spec={"cpus": 3, "memory_mib": 60000})
    held = Held(snap([node("n1", 2, cpus=4)], [running]))
    assert held.by_others(2, on("n1", 1, cpus=1)) == ()
    assert held.by_others(2, on("n1", 1, cpus=2)) == (1,)
    assert held.by_others(2, on("n1", 1, cpus=1, memory_mib=9000)) == (1,)
    assert held.by_others(1, on("n1", 0, 1, cpus=4, memory_mib=65536)) == ()
    held.take(1, on("n1", 0, cpus=1))
    assert held.by_others(2, on("n1", 1, cpus=3)) == ()


def test_a_job_without_gpus_waits_for_cpus() -> None:
    held = Held(snap([node("n1", 0, cpus=4)], []))
    held.take(1, on("n1", cpus=4))
    assert held.by_others(2, on("n1", cpus=1)) == (1,)


def test_shares_are_accounted_as_measured() -> None:
    cluster = [node("n1", 1, memory_mib=16000)]
    small = Held(snap(cluster, [sharing(1, 12000, on=("n1", 0), measured_mib=4000)]))
    assert small.by_others(2, on("n1", 0, share=Share(memory_mib=12000, milli=750))) == ()
    grown = Held(snap(cluster, [sharing(1, 4000, on=("n1", 0), measured_mib=12000)]))
    assert grown.by_others(2, on("n1", 0, share=Share(memory_mib=8000, milli=500))) == (1,)
    assert grown.by_others(2, on("n1", 0)) == (1,)


def test_a_share_never_joins_a_gpu_held_whole() -> None:
    held = Held(snap([node("n1", 1, memory_mib=16000)], [view(1, 1, at={"n1": [0]})]))
    assert held.by_others(2, on("n1", 0, share=Share(memory_mib=1, milli=1))) == (1,)


def test_an_overload_lets_more_shares_on_a_gpu_but_none_beside_a_whole_one() -> None:
    cluster = [node("n1", 2, memory_mib=16000)]
    jobs = [sharing(1, 1000, on=("n1", 0), gpu_milli_now=700), view(2, 1, at={"n1": [1]})]
    jobs[0] = replace(jobs[0], spec=replace(jobs[0].spec, gpus=replace(jobs[0].spec.gpus, utilisation_milli=700)))
    more = Share(memory_mib=1000, milli=450)
    assert Held(snap(cluster, jobs)).by_others(3, on("n1", 0, share=more)) == (1,)
    overloaded = Held(snap(cluster, jobs, share_overload_milli=1200))
    assert overloaded.by_others(3, on("n1", 0, share=more)) == ()
    assert overloaded.by_others(3, on("n1", 1, share=Share(memory_mib=10, milli=100))) == (2,)
    light = Held(snap(cluster, [sharing(1, 1000, on=("n1", 0))], share_overload_milli=1200))
    assert light.by_others(3, on("n1", 0, share=Share(memory_mib=10, milli=1000))) == (1,), "a whole GPU's compute"
