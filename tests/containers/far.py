"""Machines over SSH that run containers: each with a container storage of its own, as machines have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from containers.images import podman
from ssh.machines import Machine

CGROUPS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")
STORAGE = [
    "mount -t tmpfs none /dev/shm",
    "mkdir -p /mnt/containers",
    "mount --bind /mnt/containers /var/lib/containers",
    "mount -t tmpfs none /sys/fs/cgroup",
    *(f"d=/sys/fs/cgroup/{name}; mkdir $d; mount -t cgroup -o {name} none $d || rmdir $d" for name in CGROUPS),
]
"""A namespace of its own has no cgroups mounted, and must not share podman's database with this machine."""
NO_RUNTIME = [
    f"[ ! -e {path} ] || mount --bind /mnt/etc/hosts {path}" for path in ("/usr/bin/podman", "/usr/local/bin/docker")
]
"""A file that is not executable is in the place of each runtime."""


def with_podman(
    new_machine: Callable[..., Machine], name: str, *, more: Sequence[str] = (), **options: object
) -> Machine:
    """`more`: commands at each boot, beside those that make room for containers."""
    return new_machine(name, mounts=[*STORAGE, *more], **options)


def load(machine: Machine, image: str) -> None:
    """Bring an image of this machine to another, by a file."""
    archive = machine.dir / "tmp" / "image.tar"
    done = podman("save", "--output", str(archive), image)
    assert done.returncode == 0, done.stderr
    machine.run("podman", "load", "--input", "/tmp/image.tar", user="root")
    archive.unlink()
