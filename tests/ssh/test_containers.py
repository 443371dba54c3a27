"""Jobs with an image on machines over SSH: real podman and runc there, the same shim, the same in-job library."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from containers.far import NO_RUNTIME, load, with_podman
from containers.images import busybox, python
from containers.jobs import write_config
from harness import Daemon, daemon, eventually
from ssh.fleet import node, until
from ssh.machines import Machine
from ssh.shell import Shell

New = Callable[..., Machine]
pytestmark = pytest.mark.skipif(not shutil.which("podman"), reason="needs podman")


@pytest.fixture
def served(tmp_path: Path, user_home: Path) -> Iterator[Daemon]:
    """A daemon whose operator lets jobs run in containers."""
    write_config(tmp_path / "swell", ("~",), container_gpu_probe_s=1.0)
    with daemon(tmp_path / "swell", gpus=0, env={"HOME": str(user_home), "SSH_AUTH_SOCK": ""}) as running:
        yield running


def add_root(sh: Shell, machine: Machine, gpus: int = 1) -> None:
    """As root: podman without root needs more of a machine than namespaces of this one can be."""
    where = ("--key", machine.key, "--name", machine.name, "--root", "/home/root/.swell")
    sh("node", "add", f"root@{machine.address}", *where, "--gpus", gpus)


def inside(machine: Machine) -> list[str]:
    """Containers that the machine has."""
    return machine.run("podman", "ps", "--all", "--format={{.Names}}", user="root").split()


def test_a_job_with_an_image_runs_where_a_runtime_is_and_nowhere_else(
    new_machine: New, sh: Shell, served: Daemon
) -> None:
    able, bare = with_podman(new_machine, "able"), new_machine("bare", mounts=NO_RUNTIME)
    load(able, busybox())
    add_root(sh, bare, gpus=4)
    add_root(sh, able)
    eventually(lambda: node(served, "bare")["no_containers"] and not node(served, "able")["no_containers"], 30)
    (sh.work / "job.yaml").write_text(json.dumps({"command": "true", "image": busybox(), "nodes": ["bare"]}))
    refused = sh("submit", "job.yaml", code=None)
    assert "no node that it may use runs containers (bare: there is no podman or docker on it)" in refused
    assert "containers  none: there is no podman or docker on it" in sh("node", "show", "bare")
    (sh.work / "in.txt").write_text("forty-two")
    file = {"command": "cat in.txt; hostname; echo made > out.txt; sleep 3", "image": busybox(), "name": "inside"}
    (sh.work / "job.yaml").write_text(json.dumps(file))
    said = sh("submit", "job.yaml", "--json")
    job = int(json.loads(said)["ids"][0])
    until(served, job, "running")
    assert "not on bare, because it has an image: there is no podman or docker on it" in sh("explain", job)
    assert until(served, job, "completed", "failed")["message"] == ""
    assert sh("logs", job) == "forty-twoable\n"
    sh("fetch", job, "--into", "back")
    assert (sh.work / "back" / "out.txt").read_text() == "made\n"
    assert inside(able) == []


@pytest.mark.timeout(900)  # the image with Python is made here if no test has made it yet
def test_a_stopped_job_leaves_no_container_there_and_its_library_reaches_the_daemon(
    new_machine: New, sh: Shell, served: Daemon
) -> None:
    machine = with_podman(new_machine, "able")
    load(machine, python())
    add_root(sh, machine)
    train = (
        "import swell, time\n"
        "with swell.training(epochs=1000) as run:\n"
        "    for epoch in run.epochs():\n"
        "        time.sleep(0.1)\n"
        "        run.save(epoch)\n"
    )
    (job,) = served.submit(command=["python", "-c", train], image=python(), gpus=1, epochs=1000, uses_library=True)
    eventually(lambda: served.get(f"/v1/jobs/{job}")["progress"]["epochs_done"] >= 3, 90, what="epochs are reported")
    assert len(inside(machine)) == 1
    served.post(f"/v1/jobs/{job}/pause")
    until(served, job, "queued")
    done = served.get(f"/v1/jobs/{job}")["progress"]["epochs_done"]
    assert inside(machine) == []
    served.post(f"/v1/jobs/{job}/resume")
    eventually(lambda: served.get(f"/v1/jobs/{job}")["progress"]["epochs_done"] > done, 60, what="it goes on")
    sh("cancel", job, "--now")
    until(served, job, "cancelled")
    eventually(lambda: inside(machine) == [], 30, what="no container is left")


CDI = """cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: GPU-cards-0
  containerEdits: {env: [SEEN=GPU-cards-0]}
- name: GPU-cards-1
  containerEdits: {env: [SEEN=GPU-cards-1]}
"""
PLACE_CDI = ["mkdir -p /run/cdi", f"printf '%s' '{CDI}' > /run/cdi/nvidia.yaml"]
SMI_INSIDE = """#!/bin/sh
[ -e /state/gone ] || exec echo "GPU 0: of a test"
echo "Failed to initialize NVML: Unknown Error"
exit 255
"""
"""What nvidia-smi prints in a container whose devices were taken away."""


def test_gpus_are_handed_in_by_uuid_and_a_container_that_lost_them_is_begun_again(
    new_machine: New, sh: Shell, served: Daemon
) -> None:
    """With a CDI specification that podman reads itself; the devices behind it, and nvidia-smi, are a test's own."""
    machine = with_podman(new_machine, "cards", gpus=2, more=PLACE_CDI)
    load(machine, busybox())
    where = ("--key", machine.key, "--name", machine.name, "--root", "/home/root/.swell")
    sh("node", "add", f"root@{machine.address}", *where)
    state = machine.home("root") / "state"
    state.mkdir()
    smi = machine.home("root") / "nvidia-smi"
    smi.write_text(SMI_INSIDE)
    smi.chmod(0o755)
    mounts = ["/home/root/state:/state", "/home/root/nvidia-smi:/bin/nvidia-smi:ro"]
    line = "echo $SEEN $CUDA_VISIBLE_DEVICES >> /state/seen; [ ! -e /state/gone ] && sleep 100000; exit 0"
    jobs = [served.submit(command=line, image=busybox(), gpus=1, mounts=mounts, name="uses")[0] for _ in range(2)]
    for job in jobs:
        until(served, job, "running")
    eventually(lambda: (state / "seen").exists() and len((state / "seen").read_text().split()) == 4, 30)
    assert sorted((state / "seen").read_text().splitlines()) == ["GPU-cards-0 0", "GPU-cards-1 0"]
    (state / "gone").touch()
    for job in jobs:
        told = until(served, job, "completed", "failed", "lost", timeout_s=120)
        assert (told["state"], told["attempts"], told["failures"]) == ("completed", 2, 0)
        (first, _) = served.get(f"/v1/jobs/{job}/runs")["runs"]
        assert "the container lost its GPUs (Failed to initialize NVML: Unknown Error)" in first["message"]
    eventually(lambda: inside(machine) == [], 30)
