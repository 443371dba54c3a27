"""What a worker with an image asks of its node's container runtime, as a plain value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swell.core.events import ExitReason
from swell.core.ids import RunId
from swell.core.job import JobSpec, Mount
from swell.core.resources import Allocation, Gpu, Node, Part
from swell.core.state import JobRecord, Run
from swell.executors.container import ContainerSettings
from swell.executors.container_ends import container_reason, why_not_contained
from swell.executors.request import LaunchContext, build_launch
from swell.ports import Worker
from swell.shim.environment import completed_request

CONTEXT = LaunchContext(
    url="http://127.0.0.1:7777",
    token="t0k3n",
    runs_dir="/h/runs",
    checkpoints_dir="/h/checkpoints",
    work_dir="/h/work",
    sdk_dir="/h/sdk",
    submit_shell=True,
    containers=ContainerSettings(cluster_id="c0ffee00c0ffee00", options=("--runtime=runc",), mount_sources=("/home",)),
)
SPEC = JobSpec(
    name="resnet",
    command=("python", "train.py"),
    image="train:1",
    mounts=(Mount(source="/home/me/data", target="/data/", read_only=True),),
    ports={"31346": "6006"},
    shell_env={"PATH": "/home/me/bin"},
    cpus=2,
    memory_mib=512,
)
ALLOCATION = Allocation(parts=(Part(node="n1", gpus=(1, 3)),))


def worker(spec: JobSpec = SPEC, **gpu: Any) -> Worker:
    node = Node(name="n1", gpus=tuple(Gpu(index=index, **gpu) for index in range(4)))
    run = Run(id=RunId(7, 2), allocation=ALLOCATION, planned_s=0.0)
    record = JobRecord(id=7, spec=spec, submitted_s=0.0, run=run, attempts=2)
    return build_launch(record, {"n1": node}, {"n1": CONTEXT}).workers[0]


def test_the_request_of_a_container() -> None:
    assert worker().container == {
        "runtime": "",
        "options": ["--runtime=runc"],
        "image": "train:1",
        "name": "swell-c0ffee00c0ff-7-2-0",
        "labels": {"swell.cluster": "c0ffee00c0ffee00", "swell.run": "7.2", "swell.rank": "0"},
        "mounts": [
            {"source": "/h/work/7", "target": "/h/work/7", "make": "directory"},
            {"source": "/h/checkpoints/7", "target": "/h/checkpoints/7", "make": "directory"},
            {"source": "/h/runs/7.2/epochs", "target": "/h/runs/7.2/epochs", "make": "file"},
            {"source": "/h/sdk", "target": "/h/sdk", "read_only": True, "make": ""},
            {"source": "/home/me/data", "target": "/data", "read_only": True},
        ],
        "sources": ["/home"],
        "ports": {"31346": "6006"},
        "workdir": "/h/work/7",
        "gpus": {"vendor": "", "indices": [], "uuids": []},
        "cpus": 2,
        "memory_mib": 512,
        "shm_mib": 0,
        "pids": 0,
        "pull_timeout_s": 3600.0,
        "gpu_probe_s": 60.0,
    }


def test_the_socket_of_a_machine_over_ssh_is_seen_inside() -> None:
    far = replace(CONTEXT, url="unix:/h/link/daemon")
    run = Run(id=RunId(7, 2), allocation=ALLOCATION, planned_s=0.0)
    record = JobRecord(id=7, spec=SPEC, submitted_s=0.0, run=run, attempts=2)
    (held,) = build_launch(record, {"n1": Node(name="n1")}, {"n1": far}).workers
    assert {"source": "/h/link", "target": "/h/link", "make": ""} in held.container["mounts"]
    assert held.env["SWELL_URL"] == "unix:/h/link/daemon"


def test_without_an_image_there_is_no_container() -> None:
    bare = replace(SPEC, image="", mounts=(), ports={})
    assert worker(bare).container == {}


def test_the_submitters_path_stays_outside() -> None:
    assert "PATH" not in worker().env


def test_a_container_counts_its_own_gpus_from_zero() -> None:
    held = worker(type="a100", memory_mib=40_000)
    assert held.container["gpus"] == {"vendor": "nvidia", "indices": [1, 3], "uuids": ["1", "3"]}
    named = worker(type="a100", memory_mib=40_000, uuid="GPU-b").container["gpus"]
    assert named["uuids"] == ["GPU-b", "GPU-b"]
    assert held.env["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_slots_that_stand_for_gpus_hand_nothing_in() -> None:
    assert worker().env["CUDA_VISIBLE_DEVICES"] == "1,3"


def test_amd_gpus_are_known_by_their_type() -> None:
    assert worker(type="MI250", memory_mib=64_000).container["gpus"]["vendor"] == "amd"


def test_checkpoints_that_the_user_mounts_are_not_mounted_twice() -> None:
    spec = replace(SPEC, checkpoint_dir="/snapshots", mounts=(Mount(source="/home/me/s", target="/snapshots"),))
    found = worker(spec)
    assert found.env["SWELL_CHECKPOINT_DIR"] == "/snapshots/7"
    assert "/h/checkpoints/7" not in [mount["target"] for mount in found.container["mounts"]]


def test_the_machines_environment_is_for_the_runtime_not_for_the_container() -> None:
    request = completed_request({"HOME": "/root"}, {"env": {"A": "1"}, "container": {"image": "x"}})
    assert (request["env"], request["runtime_env"]) == ({"A": "1"}, {"HOME": "/root"})


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("image", ExitReason.START_FAILED),
        ("missing", ExitReason.START_FAILED),
        ("architecture", ExitReason.START_FAILED),
        ("command", ExitReason.START_FAILED),
        ("mount", ExitReason.START_FAILED),
        ("runtime", ExitReason.START_FAILED),
        ("registry", ExitReason.NODE_FULL),
        ("node", ExitReason.NODE_FULL),
        ("lost", ExitReason.SHIM_LOST),
        ("cwd", None),
    ],
)
def test_whose_fault_it_is(step: str, reason: ExitReason | None) -> None:
    failed = {"step": step, "said": "because of that", "image": "train:1", "program": "python"}
    assert container_reason(failed) is reason
    assert "because of that" in why_not_contained(failed)


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("image", "check its name and tag"),
        ("missing", "install podman there"),
        ("architecture", "build it for the node's architecture"),
        ("mount", "mount something else"),
        ("registry", "cannot be pulled now"),
        ("node", "make room on its disk"),
        ("gpus", "nothing is counted against it"),
        ("runtime", "could not be started"),
    ],
)
def test_people_read_what_to_do_about_it(step: str, says: str) -> None:
    assert says in why_not_contained({"step": step, "said": "because of that", "image": "train:1"})


def test_a_workdir_that_the_image_has_not_is_named() -> None:
    said = 'Error: workdir "/app" does not exist on container 05ad'
    failed = {"step": "command", "said": said, "image": "train:1", "program": "python"}
    assert "cannot start python: its workdir is not in image train:1" in why_not_contained(failed)
