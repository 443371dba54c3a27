"""The command lines of a container runtime for the worker of a request. Pure, golden-tested; standard library only.

Choices made here:

- podman runs in the foreground and hands its own output on (`passthrough`): the container writes the worker's log
  itself, and conmon and the container are below the shim. docker's containers are below its daemon, found by name.
- The host's network: ranks meet, and the in-job library reaches the daemon, as without a container.
- Variables go through a file that only the user can read; a command line is open to everybody on the machine.
- Files that a container writes belong to the user: rootless podman keeps the user's id, docker gets it as an option.
- `cpus` is a weight, not a cap: idle cores are for whoever can use them. Memory is a limit.
"""

from __future__ import annotations

import os
import signal

from swell.shim.files import Json

DOCKER = "docker"


def is_docker(program: str) -> bool:
    return os.path.basename(program).startswith(DOCKER)


def run_argv(program: str, container: Json, argv: list[str], directory: str, uid: int, gid: int) -> list[str]:
    """`run` of one worker; `directory` is the worker's own, where the file of its variables is."""
    docker = is_docker(program)
    return [
        program,
        "run",
        f"--name={container['name']}",
        *(f"--label={name}={value}" for name, value in sorted(container["labels"].items())),
        "--network=host",
        "--pull=never",
        f"--env-file={os.path.join(directory, 'env')}",
        *(["--sig-proxy=false"] if docker else ["--log-driver=passthrough", "--sig-proxy=false"]),
        *([] if docker else [f"--pidfile={os.path.join(directory, 'pid')}"]),
        *_user(docker, uid, gid),
        *_limits(container),
        *_gpus(docker, container["gpus"]),
        *(_mount(mount) for mount in container["mounts"]),
        f"--workdir={container['workdir'] or '/'}",
        "--entrypoint=",
        *container["options"],
        container["image"],
        *argv,
    ]


def _user(docker: bool, uid: int, gid: int) -> list[str]:
    if uid == 0:
        return []
    return [f"--user={uid}:{gid}"] if docker else ["--userns=keep-id"]


def _limits(container: Json) -> list[str]:
    found = [f"--cpu-shares={1024 * container['cpus']}"] if container["cpus"] else []
    if container["memory_mib"]:  # no swap beyond the limit
        found += [f"--memory={container['memory_mib']}m", f"--memory-swap={container['memory_mib']}m"]
    if container["shm_mib"]:
        found.append(f"--shm-size={container['shm_mib']}m")
    if container["pids"]:
        found.append(f"--pids-limit={container['pids']}")
    return found


def _gpus(docker: bool, gpus: Json) -> list[str]:
    """NVIDIA's by their UUIDs, which stay when a driver counts anew after a reboot; AMD's by their device files."""
    if gpus["vendor"] == "amd":
        return ["--device=/dev/kfd", *(f"--device=/dev/dri/renderD{128 + index}" for index in gpus["indices"])]
    if gpus["vendor"] != "nvidia":
        return []
    if docker:
        return [f'--gpus="device={",".join(gpus["uuids"])}"']
    return [f"--device=nvidia.com/gpu={uuid}" for uuid in gpus["uuids"]]


def _mount(mount: Json) -> str:
    """Of a path without commas, quotes and colons: others are refused."""
    mode = ",readonly" if mount.get("read_only") else ""
    return f"--mount=type=bind,source={mount['source']},target={mount['target']}{mode}"


def remove_argv(program: str, name: str) -> list[str]:
    options = ["--force", "--volumes"] if is_docker(program) else ["--force", "--volumes", "--ignore", "--time=0"]
    return [program, "rm", *options, name]


def kill_argv(program: str, name: str) -> list[str]:
    """End it; its exit code can still be read."""
    return [program, "kill", "--signal=KILL", name]


def state_argv(program: str, name: str) -> list[str]:
    return [program, "container", "inspect", "--format={{json .State}}", name]


def tells_the_end(program: str, code: int) -> bool:
    """This exit code of `run` is the one of the program, which had begun: the runtime need not be asked for it. Not
    those that podman has itself (125 to 127), has for a container that it lost (255), or of which more is to be known
    (137: was it for want of memory?). docker's client may lose its daemon, and then knows nothing."""
    return not is_docker(program) and (0 <= code < 125 or 128 <= code < 255) and code != 128 + signal.SIGKILL


def probe_argv(program: str, name: str) -> list[str]:
    """Asks the driver from within the container."""
    return [program, "exec", name, "nvidia-smi", "-L"]


def gpus_lost(code: int, said: str) -> str:
    """What a failed probe says of a container that lost its GPUs; empty: nothing. A container that has no nvidia-smi,
    or is just ending, proves nothing."""
    signs = ("failed to initialize nvml", "unknown error", "no devices were found", "gpu is lost")
    lines = [line.strip() for line in said.splitlines() if any(sign in line.lower() for sign in signs)]
    return lines[0][:300] if code != 0 and lines else ""


def image_argv(program: str, image: str) -> list[str]:
    """Prints, if the image is present, the platform that it was built for."""
    return [program, "image", "inspect", "--format={{.Os}}/{{.Architecture}}", image]


def pull_argv(program: str, image: str) -> list[str]:
    return [program, "pull", image]


_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


def platform_of(machine: str) -> str:
    """As images are labelled, by the name that the kernel has for the machine."""
    return f"linux/{_ARCHITECTURES.get(machine, machine)}"


def env_file(env: dict[str, str]) -> bytes:
    """One variable per line, values as they are. Raises ValueError for what runtimes would change or refuse."""
    for name, value in env.items():
        if any(character in value for character in "\n\r\0") or not name.isidentifier():
            raise ValueError(f"the variable {name} has a line break in its value, which no container runtime passes on")
    return "".join(f"{name}={value}\n" for name, value in sorted(env.items())).encode("utf-8", "surrogateescape")


def failure_of(code: int, said: str, image: str, program: str) -> Json:
    """Why a container never started, as a step of the exit record. `said`: what the runtime printed."""
    text = said.lower()
    if any(sign in text for sign in ("no space left", "disk quota", "cannot allocate memory", "too many open files")):
        return {"step": "node", "said": said, "image": image}
    if "exec format error" in text:
        return {"step": "architecture", "said": said, "image": image}
    if code in (126, 127) or "executable file not found" in text:
        return {"step": "command", "said": said, "image": image, "program": program}
    return {"step": "runtime", "said": said, "image": image}


def pull_failure_of(said: str, image: str) -> Json:
    """Why an image could not be had. A registry that is down, or a full disk, is no fault of the job."""
    text = said.lower()
    passing = ("connection refused", "i/o timeout", "no such host", "timed out", "tls handshake", "no route to host")
    if any(sign in text for sign in ("no space left", "disk quota")):
        return {"step": "node", "said": said, "image": image}
    if image.startswith("localhost/"):  # what podman calls images that are nowhere but on the machine itself
        return {"step": "image", "said": said, "image": image}
    if any(sign in text for sign in (*passing, "toomanyrequests", "connection reset", "service unavailable")):
        return {"step": "registry", "said": said, "image": image}
    return {"step": "image", "said": said, "image": image}
