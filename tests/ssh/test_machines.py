"""The machines of these tests themselves: what a cut, a power cut and a killed sshd do."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable

import pytest

from harness import eventually
from ssh.machines import Machine
from ssh.slow_link import SlowLink

New = Callable[..., Machine]


def ssh(machine: Machine, command: str, timeout_s: float = 20.0, user: str = "ada") -> str:
    options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "BatchMode=yes"]
    argv = ["ssh", "-F", "none", "-i", str(machine.key), *(f"-o{option}" for option in options)]
    done = subprocess.run(
        [*argv, f"{user}@{machine.address}", command], capture_output=True, text=True, timeout=timeout_s
    )
    if done.returncode:
        raise AssertionError(f"{done.returncode}: {done.stderr}")
    return done.stdout


def test_each_machine_has_its_own_name_user_home_and_gpus(three_machines: tuple[Machine, Machine, Machine]) -> None:
    for machine, gpus in zip(three_machines, (4, 2, 1), strict=True):
        said = ssh(machine, "hostname; whoami; pwd; nvidia-smi --query-gpu=index,mig --format=csv,noheader").split("\n")
        assert said[:3] == [machine.name, "ada", "/home/ada"]
        assert said[3:-1] == [f"{i}, [N/A]" for i in range(gpus)]
        ssh(machine, "touch ~/mine")
        assert (machine.home() / "mine").exists()


def test_processes_of_a_session_that_was_cut_go_on_until_the_power_is_off(new_machine: New) -> None:
    machine = new_machine(gpus=1)
    ssh(machine, "setsid sleep 4321 >/dev/null 2>&1 </dev/null &")
    boot_id = machine.run("cat", "/proc/sys/kernel/random/boot_id").strip()
    assert boot_id == machine.boot_id
    machine.kill_sshd()
    assert "sleep 4321" in machine.commands()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((machine.address, 22), timeout=5)
    machine.start_sshd()
    assert ssh(machine, "echo here").strip() == "here"
    machine.power_off()
    machine.power_on()
    assert "sleep 4321" not in machine.commands()
    assert machine.run("cat", "/proc/sys/kernel/random/boot_id").strip() not in {"", boot_id}
    assert float(machine.run("cat", "/proc/uptime").split()[0]) < 60


def test_a_machine_that_is_cut_off_answers_nothing_and_refuses_nothing(new_machine: New) -> None:
    machine = new_machine()
    machine.cut()
    with pytest.raises(TimeoutError):
        socket.create_connection((machine.address, 22), timeout=1.5)
    machine.mend()
    assert ssh(machine, "echo here").strip() == "here"


def test_machines_reach_each_other(three_machines: tuple[Machine, Machine, Machine]) -> None:
    first, second, _ = three_machines
    reach = f"import socket; print(socket.create_connection(('{second.address}', 22), 5).recv(3))"
    assert first.run("python3", "-c", reach).strip() == "b'SSH'"


def test_others_processes_are_on_the_gpus_they_were_put_on(new_machine: New) -> None:
    machine = new_machine(gpus=2)
    machine.occupy(1, 5000)
    query = "nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv,noheader,nounits"
    uuid, pid, memory = ssh(machine, query).strip().split(", ")
    assert (uuid, memory) == (f"GPU-{machine.name}-1", "5000")
    assert ssh(machine, f"ps -o user=,comm= -p {pid}").split() == ["bob", "sleep"]
    machine.vacate()
    assert ssh(machine, query) == ""
    eventually(lambda: not any("sleep 100000" in line for line in machine.commands()), 5)


def test_a_slow_link_holds_bytes_back_and_keeps_their_order(new_machine: New) -> None:
    machine = new_machine()
    link = SlowLink(machine.network.gateway, (machine.address, 22))
    try:
        with socket.create_connection((link.address, link.port), timeout=10) as quick:
            assert quick.recv(4) == b"SSH-"
        link.delay_s = 0.5
        began = time.monotonic()
        with socket.create_connection((link.address, link.port), timeout=10) as slow:
            assert slow.recv(4) == b"SSH-"
        assert time.monotonic() - began >= 0.5
    finally:
        link.close()
