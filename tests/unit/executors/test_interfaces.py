"""Workers on several machines meet on the interface that has their machine's address."""

from __future__ import annotations

from swell.core.job import JobSpec, Launcher
from swell.core.resources import Allocation, Node, Part
from swell.executors.launchers import processes, site_of
from swell.executors.request import _distributed

SPEC = JobSpec(name="j", command=("python", "train.py"), launcher=Launcher.PER_GPU)
NODES = {
    "gpu1": Node(name="gpu1", address="10.0.0.1", interface="eth0"),
    "gpu2": Node(name="gpu2", address="10.0.0.2", interface="ib0"),
    "gpu3": Node(name="gpu3", address="10.0.0.3"),
}


def environments(*names: str) -> list[dict[str, str]]:
    allocation = Allocation(parts=tuple(Part(node=name, gpus=(0,)) for name in names), gpu_type="gpu")
    site = site_of(allocation, NODES, 29500, "")
    started = processes(SPEC, site)
    return [dict(_distributed(SPEC, site, started, process, rank)) for rank, process in enumerate(started)]


def test_each_worker_is_told_the_interface_of_its_own_machine() -> None:
    first, second = environments("gpu1", "gpu2")
    assert first["MASTER_ADDR"] == second["MASTER_ADDR"] == "10.0.0.1"
    assert [env["GLOO_SOCKET_IFNAME"] for env in (first, second)] == ["eth0", "ib0"]
    assert [env["NCCL_SOCKET_IFNAME"] for env in (first, second)] == ["eth0", "ib0"]


def test_an_unknown_interface_and_a_run_on_one_machine_leave_the_choice_to_the_library() -> None:
    assert "GLOO_SOCKET_IFNAME" not in environments("gpu1")[0]
    assert "GLOO_SOCKET_IFNAME" not in environments("gpu2", "gpu3")[1]
