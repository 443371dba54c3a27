"""A run never spans machines that cannot reach each other (for every placer: property/test_placement.py)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swell.core.decision import Layout
from swell.core.errors import Infeasible
from swell.core.job import GpuRequest, JobSpec, Launcher
from swell.core.resources import Node
from swell.core.snapshot import JobView
from swell.placement.registry import DEFAULT_PLACER, placer_named
from swell.plan.admit import check_feasible
from unit.placement.build import node, rng, snap, view, want

HERE = node("here", 4)
LAB = (node("gpu1", 4, executor="ssh", realm="lab"), node("gpu2", 2, executor="ssh", realm="lab"))
FAR = node("gpu3", 4, executor="ssh", realm="cloud")


def place(cluster: tuple[Node, ...], job: JobView, n: int) -> Layout:
    return placer_named(DEFAULT_PLACER).place(snap(cluster, [job]), want((job, n)), rng())


def spec(least: int, most: int) -> JobSpec:
    return JobSpec(name="j", command=("x",), gpus=GpuRequest(min=least, max=most), launcher=Launcher.PER_GPU)


@pytest.mark.parametrize("cluster", [(HERE, *LAB, FAR), (*LAB, HERE, FAR)])
def test_a_job_that_needs_more_than_one_machine_stays_within_a_realm(cluster: tuple[Node, ...]) -> None:
    layout = place(cluster, view(1, 6), 6)
    assert sorted(layout.allocations[1].nodes) == ["gpu1", "gpu2"]


def test_a_job_that_may_be_smaller_starts_smaller_rather_than_span_realms() -> None:
    layout = place((HERE, FAR), view(1, 8, sizes=tuple(range(1, 9))), 8)
    assert layout.allocations[1].gpus == 4


def test_what_no_realm_has_is_refused_when_it_is_submitted() -> None:
    check_feasible(spec(6, 6), (HERE, *LAB, FAR))
    with pytest.raises(
        Infeasible, match=r"at least 8 GPUs of one type on machines that reach each other and there are 6"
    ):
        check_feasible(spec(8, 8), (HERE, *LAB, FAR))


def test_slots_beside_each_other_are_one_realm_as_before() -> None:
    check_feasible(spec(8, 8), (HERE, replace(HERE, name="also-here")))
