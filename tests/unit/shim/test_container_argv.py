"""The runtime's command lines, as they are: nothing here starts anything."""

from __future__ import annotations

from typing import Any

import pytest

from swell.shim import container_argv


def container(**fields: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "runtime": "",
        "options": [],
        "image": "train:1",
        "name": "swell-c0ffee-7-2-0",
        "labels": {"swell.run": "7.2", "swell.cluster": "c0ffee", "swell.rank": "0"},
        "mounts": [
            {"source": "/w/7", "target": "/w/7", "make": "directory"},
            {"source": "/sdk", "target": "/sdk", "read_only": True},
        ],
        "ports": {},
        "workdir": "/w/7",
        "gpus": {"vendor": "", "indices": [], "uuids": []},
        "cpus": 2,
        "memory_mib": 4096,
        "shm_mib": 8192,
        "pids": 0,
    }
    return {**plain, **fields}


def run(program: str = "/usr/bin/podman", uid: int = 0, **fields: Any) -> list[str]:
    return container_argv.run_argv(program, container(**fields), ["python", "-c", "--rm"], "/runs/7.2/0", uid, 100)


def test_podman_as_root() -> None:
    assert run() == [
        "/usr/bin/podman",
        "run",
        "--name=swell-c0ffee-7-2-0",
        "--label=swell.cluster=c0ffee",
        "--label=swell.rank=0",
        "--label=swell.run=7.2",
        "--network=host",
        "--pull=never",
        "--env-file=/runs/7.2/0/env",
        "--log-driver=passthrough",
        "--sig-proxy=false",
        "--pidfile=/runs/7.2/0/pid",
        "--cpu-shares=2048",
        "--memory=4096m",
        "--memory-swap=4096m",
        "--shm-size=8192m",
        "--mount=type=bind,source=/w/7,target=/w/7",
        "--mount=type=bind,source=/sdk,target=/sdk,readonly",
        "--workdir=/w/7",
        "--entrypoint=",
        "train:1",
        "python",
        "-c",
        "--rm",
    ]


def test_docker_for_a_user() -> None:
    assert run("/usr/bin/docker", 1000, mounts=[], cpus=0, memory_mib=0, shm_mib=0, pids=512, options=["--init"]) == [
        "/usr/bin/docker",
        "run",
        "--name=swell-c0ffee-7-2-0",
        "--label=swell.cluster=c0ffee",
        "--label=swell.rank=0",
        "--label=swell.run=7.2",
        "--network=host",
        "--pull=never",
        "--env-file=/runs/7.2/0/env",
        "--sig-proxy=false",
        "--user=1000:100",
        "--pids-limit=512",
        "--workdir=/w/7",
        "--entrypoint=",
        "--init",
        "train:1",
        "python",
        "-c",
        "--rm",
    ]


def test_files_belong_to_the_user_with_rootless_podman() -> None:
    assert "--userns=keep-id" in run(uid=1000)


@pytest.mark.parametrize(
    ("program", "vendor", "options"),
    [
        ("podman", "nvidia", ["--device=nvidia.com/gpu=GPU-b", "--device=nvidia.com/gpu=GPU-d"]),
        ("docker", "nvidia", ['--gpus="device=GPU-b,GPU-d"']),
        ("podman", "amd", ["--device=/dev/kfd", "--device=/dev/dri/renderD129", "--device=/dev/dri/renderD131"]),
        ("docker", "", []),
    ],
)
def test_gpus_are_handed_in_as_the_runtime_knows_them(program: str, vendor: str, options: list[str]) -> None:
    argv = run(program, gpus={"vendor": vendor, "indices": [1, 3], "uuids": ["GPU-b", "GPU-d"]})
    assert [word for word in argv if word.startswith(("--device", "--gpus"))] == options


@pytest.mark.parametrize(
    ("code", "said", "lost"),
    [
        (255, "Failed to initialize NVML: Unknown Error\n", "Failed to initialize NVML: Unknown Error"),
        (
            15,
            "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system\n",
            "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system",
        ),
        (6, "No devices were found\n", "No devices were found"),
        (0, "GPU 0: NVIDIA A100 (UUID: GPU-b)\n", ""),
        (127, "Error: crun: executable file `nvidia-smi` not found in $PATH: No such file or directory\n", ""),
        (255, "Error: can only create exec sessions on running containers: container state improper\n", ""),
        (-1, "timed out after 60 seconds", ""),
    ],
)
def test_only_the_drivers_own_words_prove_that_a_container_lost_its_gpus(code: int, said: str, lost: str) -> None:
    assert container_argv.gpus_lost(code, said) == lost


def test_nothing_is_privileged_unless_the_operator_says_so() -> None:
    assert "--privileged" not in run()
    assert "--privileged" in run(options=["--privileged"])


def test_variables_are_in_a_file_and_never_on_the_command_line() -> None:
    assert container_argv.env_file({"B": ' "x" # $(id)', "A": "1=2"}) == b'A=1=2\nB= "x" # $(id)\n'
    assert not any("TOKEN" in word for word in run())


@pytest.mark.parametrize(
    ("name", "value"), [("A", "1\n2"), ("A", "1\r"), ("A*", "1"), ("#A", "1"), ("A B", "1"), ("", "1")]
)
def test_variables_that_a_runtime_would_change_are_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="no container runtime passes on"):
        container_argv.env_file({name: value})


@pytest.mark.parametrize(
    ("code", "said", "step"),
    [
        (127, 'exec: "nosuch": executable file not found in $PATH', "command"),
        (126, 'exec: "/x": permission denied', "command"),
        (125, "Error: writing blob: no space left on device", "node"),
        (1, "exec /bin/python: exec format error", "architecture"),
        (125, "Error: unable to find runc", "runtime"),
    ],
)
def test_what_kept_a_container_from_starting(code: int, said: str, step: str) -> None:
    assert container_argv.failure_of(code, said, "train:1", "python")["step"] == step


@pytest.mark.parametrize(
    ("said", "step"),
    [
        ("manifest unknown", "image"),
        ("requested access to the resource is denied", "image"),
        ("dial tcp 10.0.0.1:443: connect: connection refused", "registry"),
        ("write /var/lib: no space left on device", "node"),
    ],
)
def test_why_an_image_could_not_be_pulled(said: str, step: str) -> None:
    assert container_argv.pull_failure_of(said, "train:1")["step"] == step


@pytest.mark.parametrize("code", [0, 1, 85, 124, 128, 143, 254])
def test_podman_hands_on_the_exit_code_of_the_program(code: int) -> None:
    assert container_argv.tells_the_end("/usr/bin/podman", code)
    assert not container_argv.tells_the_end("/usr/bin/docker", code)


@pytest.mark.parametrize("code", [-9, -15, 125, 126, 127, 137, 255])
def test_never_taken_for_the_programs_where_the_runtime_has_it_too(code: int) -> None:
    assert not container_argv.tells_the_end("/usr/bin/podman", code)


def test_platforms_are_named_as_images_name_them() -> None:
    assert [container_argv.platform_of(machine) for machine in ("x86_64", "aarch64")] == ["linux/amd64", "linux/arm64"]
