"""What a machine offers, from readings of its GPUs: pure readings in, a node out."""

from __future__ import annotations

import os

import pytest

from swell.core.resources import GpuHealth
from swell.executors.inventory import QUARANTINE_S, Machine, Ours
from swell.executors.nvml import GpuProcess, GpuReading, short_type


class FakeClock:
    def __init__(self) -> None:
        self.s = 0.0

    def now_s(self) -> float:
        return self.s

    def monotonic_s(self) -> float:
        return self.s


@pytest.mark.parametrize(
    ("product", "short"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 NVL", "H100"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("Tesla T4", "T4"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA RTX A6000", "A6000"),
        ("NVIDIA GeForce RTX 3090", "RTX3090"),
        ("NVIDIA GeForce RTX 4070 Ti", "RTX4070TI"),
        ("Quadro RTX 8000", "RTX8000"),
        ("NVIDIA", "GPU"),
    ],
)
def test_product_names_become_what_people_write(product: str, short: str) -> None:
    assert short_type(product) == short


def machine(clock: FakeClock, readings: list[GpuReading]) -> Machine:
    return Machine(clock, name="here", readings=lambda: tuple(readings))


def test_declared_slots_need_no_driver() -> None:
    def no_driver() -> tuple[GpuReading, ...]:
        raise AssertionError("the driver was asked")

    made = Machine(FakeClock(), name="here", gpus=3, readings=no_driver)
    node = made.read(Ours())
    assert [(gpu.index, gpu.type, gpu.memory_mib) for gpu in node.gpus] == [(i, "slot", 0) for i in range(3)]
    assert made.gpu_clean(0, Ours())


def test_never_leaves_declared_slots_idle_for_want_of_cpus() -> None:
    """Jobs ask for one CPU unless they say otherwise."""
    many = 4 * (os.cpu_count() or 1)
    assert Machine(FakeClock(), gpus=many).read(Ours()).cpus == many + len(os.sched_getaffinity(0))
    assert Machine(FakeClock(), gpus=0).read(Ours()).cpus == len(os.sched_getaffinity(0))


def test_a_machine_knows_its_cpus_and_memory() -> None:
    node = machine(FakeClock(), []).read(Ours())
    assert node.cpus == len(os.sched_getaffinity(0))
    assert node.memory_mib > 100
    assert node.gpus == ()


def test_memory_of_nobody_makes_a_gpu_dirty_then_quarantined_until_it_is_free() -> None:
    clock, readings = FakeClock(), [GpuReading(index=0, type="A100", total_mib=40_000, used_mib=9_000)]
    made = machine(clock, readings)
    assert made.read(Ours()).gpus[0].health is GpuHealth.DIRTY
    assert not made.gpu_clean(0, Ours())
    clock.s = QUARANTINE_S + 1
    gpu = made.read(Ours()).gpus[0]
    assert gpu.health is GpuHealth.QUARANTINED
    assert "8960 MiB are in use by no process" in gpu.why
    readings[0] = GpuReading(index=0, type="A100", total_mib=40_000, used_mib=100)
    assert made.read(Ours()).gpus[0].health is GpuHealth.OK
    assert made.gpu_clean(0, Ours())


def test_a_gpu_that_a_run_of_ours_holds_is_never_dirty() -> None:
    """In containers the driver does not show whose memory it is."""
    made = machine(FakeClock(), [GpuReading(index=0, total_mib=40_000, used_mib=9_000)])
    assert made.read(Ours(gpus=frozenset({0}))).gpus[0].health is GpuHealth.OK


def test_others_work_is_seen_and_left_alone() -> None:
    mine = GpuProcess(pid=os.getpid(), memory_mib=1_000)
    made = machine(FakeClock(), [GpuReading(index=0, total_mib=40_000, used_mib=1_100, processes=(mine,))])
    gpu = made.read(Ours()).gpus[0]
    assert (gpu.others, gpu.others_memory_mib, gpu.health) == (True, 1_024, GpuHealth.OK)
    node = made.read(Ours(shims=frozenset({os.getppid()})))
    assert not node.gpus[0].others, "it is below a shim of ours"


def test_a_process_that_is_gone_is_nobody() -> None:
    ghost = GpuProcess(pid=2**22 + 1, memory_mib=3_000)
    made = machine(FakeClock(), [GpuReading(index=0, total_mib=40_000, used_mib=3_000, processes=(ghost,))])
    gpu = made.read(Ours()).gpus[0]
    assert (gpu.others, gpu.health) == (False, GpuHealth.DIRTY)


def test_small_changes_of_others_memory_are_no_news() -> None:
    readings = [GpuReading(index=0, processes=(GpuProcess(pid=os.getpid(), memory_mib=1_000),))]
    made = machine(FakeClock(), readings)
    before = made.read(Ours())
    readings[0] = GpuReading(index=0, processes=(GpuProcess(pid=os.getpid(), memory_mib=1_010),))
    assert made.read(Ours()) == before


def test_a_gpu_the_driver_cannot_read_is_quarantined() -> None:
    gpu = machine(FakeClock(), [GpuReading(index=0, trouble="GPU is lost")]).read(Ours()).gpus[0]
    assert gpu.health is GpuHealth.QUARANTINED
    assert "GPU is lost" in gpu.why
