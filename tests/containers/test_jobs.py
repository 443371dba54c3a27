"""Jobs with an image, submitted to a real daemon and run by podman and runc."""

from __future__ import annotations

import os
import secrets
import socket
import tarfile
from pathlib import Path

import pytest

from containers.images import busybox, podman
from containers.jobs import containers_of, ended, log_of, serving
from harness import eventually

pytestmark = pytest.mark.containers


def test_a_job_runs_in_its_image_and_leaves_files_but_no_container(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "in.txt").write_text("forty-two")
    with serving(tmp_path / "home", str(data)) as served:
        line = "cat /data/in.txt; echo made > out.txt; echo also > /data/result.txt; echo $$; ls /root /home; exit 0"
        (job,) = served.submit(command=line, image=busybox(), gpus=0, mounts=[f"{data}:/data"], name="inside")
        told = ended(served, job)
        assert (told["state"], told["message"]) == ("completed", "")
        assert log_of(served.home, job).startswith("forty-two1\n")  # the first process of its own world
        made = [served.home / "work" / str(job) / "out.txt", data / "result.txt"]
        assert [path.stat().st_uid for path in made] == [os.getuid()] * 2
        assert containers_of(served.home) == []


@pytest.mark.parametrize(
    ("job", "says"),
    [
        ({"command": "exit 3"}, "exit code 3"),
        ({"command": ["nosuch"]}, "cannot start nosuch: there is no such program in image"),
        ({"command": "exit 0", "image": "localhost/no-such-image-here"}, "is not on the node and cannot be pulled"),
        ({"command": "exit 0", "mounts": ["/etc:/data"]}, "/etc is outside of what may be mounted here"),
    ],
)
def test_ends_are_told_apart_with_what_to_do(tmp_path: Path, job: dict[str, object], says: str) -> None:
    with serving(tmp_path / "home") as served:
        (made,) = served.submit(**{"image": busybox(), "gpus": 0, "name": "bad", **job})
        told = ended(served, made)
        assert told["state"] == "failed"
        assert says in told["message"]
        assert containers_of(served.home) == []


def test_a_job_with_an_image_is_refused_where_no_node_has_a_runtime_with_its_name(tmp_path: Path) -> None:
    with serving(tmp_path / "home", container_runtime="no-such-runtime") as served:
        status, answer = served.request("POST", "/v1/jobs", {"command": "true", "image": busybox(), "gpus": 0})
        assert status == 422
        assert "there is no no-such-runtime on it" in answer["detail"]


def test_a_registry_that_is_down_is_no_fault_of_the_job(tmp_path: Path) -> None:
    with socket.socket() as nobody, serving(tmp_path / "home") as served:
        nobody.bind(("127.0.0.1", 0))
        (job,) = served.submit(command="true", image=f"127.0.0.1:{nobody.getsockname()[1]}/x/y:1", gpus=0)
        seen = served.get(f"/v1/jobs/{job}")
        eventually(lambda: served.get(f"/v1/jobs/{job}")["attempts"] >= 1, 20.0)
        eventually(lambda: served.get(f"/v1/jobs/{job}")["state"] == "queued", 60.0, what="it waits to be tried again")
        seen = served.get(f"/v1/jobs/{job}")
        assert "cannot be pulled now" in str(seen)
        served.post(f"/v1/jobs/{job}/cancel")


FULL_DISK = """#!/bin/sh
# podman, on a machine whose disk is full
if [ "$1" = pull ]; then
    echo "Error: writing blob: storing blob to file: write /var/tmp/storage1: no space left on device" >&2
    exit 125
fi
exec podman "$@"
"""


def test_a_node_without_room_for_the_image_is_no_fault_of_the_job(tmp_path: Path) -> None:
    runtime = tmp_path / "podman-full"
    runtime.write_text(FULL_DISK)
    runtime.chmod(0o755)
    with serving(tmp_path / "home", container_runtime=str(runtime)) as served:
        (job,) = served.submit(command="true", image="registry.test/too/large:1", gpus=0)
        eventually(lambda: served.get(f"/v1/jobs/{job}")["attempts"] >= 1, 20.0)
        eventually(lambda: served.get(f"/v1/jobs/{job}")["state"] == "queued", 60.0, what="it waits to be tried again")
        seen = served.get(f"/v1/jobs/{job}")
        assert seen["failures"] == 0
        assert "the node has no room for the container" in str(seen)
        served.post(f"/v1/jobs/{job}/cancel")


def test_an_image_for_another_architecture_is_told_before_it_is_started(tmp_path: Path) -> None:
    name = f"localhost/swell-test-{secrets.token_hex(4)}:1"
    with tarfile.open(tmp_path / "root.tar", "w") as root:
        root.add(tmp_path, "etc", recursive=False)
    made = podman("import", "--arch=arm64", str(tmp_path / "root.tar"), name)
    assert made.returncode == 0, made.stderr
    try:
        with serving(tmp_path / "home") as served:
            (job,) = served.submit(command="true", image=name, gpus=0)
            told = ended(served, job)
            assert told["state"] == "failed"
            assert f"the image {name} is not for this node (it is for linux/arm64" in told["message"]
    finally:
        podman("rmi", name)


def test_shared_memory_and_processes_are_limited_as_the_operator_says(tmp_path: Path) -> None:
    with serving(tmp_path / "home", container_shm_mib=48, container_pids=37) as served:
        line = "df -m /dev/shm | tail -1; cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null; exit 0"
        (job,) = served.submit(command=line, image=busybox(), gpus=0)
        assert ended(served, job)["state"] == "completed"
        shm, pids = log_of(served.home, job).splitlines()
        assert (shm.split()[1], pids) == ("48", "37")


def test_memory_is_a_limit_and_its_excess_is_told_as_such(tmp_path: Path) -> None:
    with serving(tmp_path / "home") as served:
        line = "x=$(head -c 200000000 /dev/zero | tr '\\0' a); echo never"
        (job,) = served.submit(command=line, image=busybox(), gpus=0, memory="48MiB")
        told = ended(served, job)
        assert told["state"] == "failed"
        assert "too much memory" in told["message"]


def test_a_port_of_the_machine_leads_to_the_one_inside(tmp_path: Path) -> None:
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        host, inside = one.getsockname()[1], two.getsockname()[1]
    with serving(tmp_path / "home") as served:
        line = f"echo hello | nc -l -p {inside} 127.0.0.1"
        (job,) = served.submit(command=line, image=busybox(), gpus=0, ports=[f"{host}:{inside}"])
        heard: list[bytes] = []

        def answers() -> bool:
            try:
                with socket.create_connection(("127.0.0.1", host), timeout=2) as client:
                    heard.append(client.recv(100))
            except OSError:
                return False
            return heard[-1] == b"hello\n"

        eventually(answers, 30.0, what="the port answers", every_s=0.2)
        eventually(lambda: served.get(f"/v1/jobs/{job}")["started_s"] is not None, 30.0)
        served.post(f"/v1/jobs/{job}/cancel")
        ended(served, job)
