"""Jobs on machines over SSH: the daemon, its agents and real sshd."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from harness import Daemon, eventually
from ssh.fleet import add, job, node, runs, until, until_contact
from ssh.machines import Machine
from ssh.shell import Shell

New = Callable[..., Machine]


def test_a_job_runs_there_with_its_files_and_its_environment(new_machine: New, served: Daemon, sh: Shell) -> None:
    machine = new_machine("gpu1")
    add(sh, machine, "--setup", "export GREETING='hello there'")
    until_contact(served, "gpu1", "here")
    (sh.work / "train.py").write_text(
        "import os, json, socket\n"
        "keys = ('GREETING', 'SWELL_RUN', 'CUDA_VISIBLE_DEVICES', 'VIRTUAL_ENV')\n"
        "print(json.dumps([socket.gethostname(), os.getcwd(), {k: os.environ.get(k) for k in keys}]))\n"
    )
    sh("run", "--detach", "--gpus", 1, "--", "python3", "train.py")
    until(served, 1, "completed")
    host, cwd, found = json.loads(sh("logs", 1).strip().splitlines()[-1])
    assert host == "gpu1"
    assert cwd.startswith("/home/ada/.swell/")
    assert cwd.endswith("/work/1")
    assert found == {
        "GREETING": "hello there",
        "SWELL_RUN": "1.1",
        "CUDA_VISIBLE_DEVICES": "0",
        "VIRTUAL_ENV": None,
    }


def test_the_library_reports_through_the_agent(new_machine: New, served: Daemon, sh: Shell) -> None:
    add(sh, new_machine("gpu1"))
    until_contact(served, "gpu1", "here")
    (sh.work / "train.py").write_text(
        "import swell, time\nwith swell.training() as run:\n    for epoch in run.epochs(40):\n        time.sleep(0.1)\n"
    )
    sh("run", "--detach", "--gpus", 1, "--", "python3", "train.py")
    eventually(lambda: job(served, 1)["progress"]["epochs_done"] >= 3, 60, what="epochs are reported while it runs")
    assert job(served, 1)["state"] == "running"
    assert until(served, 1, "completed")["progress"]["epochs_done"] == 40


def test_processes_meet_at_a_port_that_is_free_on_the_first_machine(
    new_machine: New, served: Daemon, sh: Shell
) -> None:
    machine = new_machine("gpu1")
    add(sh, machine)
    until_contact(served, "gpu1", "here")
    command = ["python3", "-c", "import os; print(os.environ['MASTER_PORT'])"]
    [first] = served.submit(name="one", command=command, gpus=1, launcher="per-gpu")
    until(served, first, "completed")
    row = int(sh("logs", first).split()[-1])
    taken = f"import socket, time; s = socket.socket(); s.bind(('', {row} + 16)); s.listen(); time.sleep(600)"
    with subprocess.Popen(machine.inside("bob", "python3", "-c", taken)) as other:  # where the next job would meet
        eventually(lambda: any("s.listen()" in line for line in machine.commands()), 30)
        [second] = served.submit(name="two", command=command, gpus=1, launcher="per-gpu")
        until(served, second, "completed")
        other.kill()
    assert int(sh("logs", second).split()[-1]) == row + 32


def test_inventory_shows_gpus_by_uuid_and_others_work(new_machine: New, served: Daemon, sh: Shell) -> None:
    machine = new_machine("gpu1", gpus=2)
    add(sh, machine, gpus=None)
    eventually(lambda: len(node(served, "gpu1")["gpus"]) == 2, 30, what="two GPUs are measured")
    machine.occupy(1)
    eventually(lambda: node(served, "gpu1")["gpus"][1]["others"], 30, what="the other's work is seen")
    machine.vacate()
    eventually(lambda: not node(served, "gpu1")["gpus"][1]["others"], 30, what="it is free again")


def cpu_s_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_daemon_is_ready_in_under_3_s_with_two_of_three_machines_off(
    three_machines: tuple[Machine, Machine, Machine], served: Daemon, sh: Shell
) -> None:
    for machine in three_machines:
        add(sh, machine)
    for machine in three_machines:
        until_contact(served, machine.name, "here")
    served.stop()
    with_all_s = served.start()
    served.stop()
    three_machines[1].power_off()
    three_machines[2].power_off()
    ready_s = served.start()
    assert served.process is not None
    cpu_s, busy = cpu_s_of(served.process.pid), os.getloadavg()[0] > 2 * (os.cpu_count() or 1)
    print(f"\nready in {ready_s:.2f} s with two of three machines off, {with_all_s:.2f} s with all; CPU {cpu_s:.2f} s")
    # A machine that is busy with other things makes everything slower, not what the daemon itself does.
    assert ready_s < 3.0 or (busy and cpu_s < 3.0 and ready_s < 1.5 * with_all_s + 1.0)
    began = time.monotonic()
    [number] = served.submit(name="quick", command=["true"], gpus=1)
    until(served, number, "completed", timeout_s=30)
    assert time.monotonic() - began < 10.0


def test_a_job_goes_on_while_the_daemon_is_down_and_is_adopted(
    new_machine: New, served: Daemon, sh: Shell, tmp_path: Path
) -> None:
    machine = new_machine("gpu1")
    add(sh, machine, lease="6s")
    until_contact(served, "gpu1", "here")
    [number] = served.submit(name="long", command=["sh", "-c", "sleep 14; echo done"], gpus=1)
    until(served, number, "running")
    served.stop()  # planned: leases are waived
    time.sleep(9)
    served.start()
    until(served, number, "completed")
    assert runs(served, number) == ["finished"]
