"""What fits where, rule by rule."""

from __future__ import annotations

import pytest

from swell.core.capacity import (
    accepts_type,
    cpus_of,
    fits_beside,
    has_labels,
    has_memory,
    need_of_spec,
    processes_of,
    servers_of,
    share_milli,
)
from swell.core.job import GpuRequest, JobSpec, Launcher, Roles
from swell.core.resources import Gpu, Node, Share


@pytest.mark.parametrize(
    ("types", "exclude", "accepted"),
    [((), (), True), (("T4",), (), True), (("A100",), (), False), ((), ("T4",), False), (("T4",), ("T4",), False)],
)
def test_types_are_the_only_ones_and_exclude_wins(
    types: tuple[str, ...], exclude: tuple[str, ...], accepted: bool
) -> None:
    assert accepts_type(GpuRequest(types=types, exclude=exclude), "T4") is accepted


def test_every_label_must_be_there() -> None:
    node = Node(name="a", labels={"zone": "x", "disk": "ssd"})
    assert has_labels(node, [("zone", "x"), ("disk", "ssd")])
    assert not has_labels(node, [("zone", "x"), ("disk", "hdd")])


def test_memory_that_others_use_is_not_there_and_unknown_memory_is_trusted() -> None:
    gpu = Gpu(index=0, memory_mib=16_000, others_memory_mib=6_000)
    assert has_memory(gpu, 10_000)
    assert not has_memory(gpu, 10_001)
    assert has_memory(Gpu(index=0), 1_000_000)


def test_a_ps_job_without_roles_has_one_server() -> None:
    ps = JobSpec(name="j", command=("x",), gpus=GpuRequest(min=2, max=2), launcher=Launcher.PS)
    assert (servers_of(ps), processes_of(ps, 2)) == (1, 3)
    assert need_of_spec(ps, 2, "gpu").part("a", (0, 1)).cpus == 3
    four = JobSpec(name="j", command=("x",), launcher=Launcher.PS, roles=Roles(servers=4))
    assert (servers_of(four), processes_of(four, 1)) == (4, 5)


@pytest.mark.parametrize(
    ("launcher", "count"), [(Launcher.SINGLE, 1), (Launcher.PER_NODE, 1), (Launcher.PER_GPU, 3), (Launcher.TORCHRUN, 3)]
)
def test_processes_go_by_the_launcher(launcher: Launcher, count: int) -> None:
    assert processes_of(JobSpec(name="j", command=("x",), gpus=GpuRequest(min=3, max=3), launcher=launcher), 3) == count


def test_a_node_has_a_cpu_for_each_gpu() -> None:
    assert cpus_of(Node(name="a", cpus=1, gpus=(Gpu(index=0), Gpu(index=1)))) == 2
    assert cpus_of(Node(name="a", cpus=8, gpus=(Gpu(index=0),))) == 8


@pytest.mark.parametrize(
    ("memory_mib", "utilisation", "gpu_mib", "milli"),
    [(4_000, 0, 16_000, 250), (4_000, 600, 16_000, 600), (1, 0, 16_000, 1), (4_000, 0, 0, 1000), (0, 300, 0, 300)],
)
def test_a_share_costs_the_larger_of_utilisation_and_memory(
    memory_mib: int, utilisation: int, gpu_mib: int, milli: int
) -> None:
    assert share_milli(memory_mib, utilisation, gpu_mib) == milli


def test_shares_fit_up_to_the_overload_and_the_memory() -> None:
    gpu = Gpu(index=0, memory_mib=16_000, others_memory_mib=1_000)
    used = Share(memory_mib=10_000, milli=700)
    assert not fits_beside(Share(memory_mib=1_000, milli=450), used, gpu, 1000)
    assert fits_beside(Share(memory_mib=1_000, milli=450), used, gpu, 1200)
    assert not fits_beside(Share(memory_mib=1_000, milli=501), used, gpu, 1200)
    assert fits_beside(Share(memory_mib=5_000, milli=300), used, gpu, 500), "never less than a whole GPU"
    assert not fits_beside(Share(memory_mib=5_001, milli=300), used, gpu, 1000)
    assert not fits_beside(Share(memory_mib=0, milli=1000), Share(memory_mib=0, milli=0), gpu, 1200)
