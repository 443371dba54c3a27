"""Checks at submit what a job with an image requests, and maps its paths to those of the machine. Pure.

`plan.admit` calls it. What only the node knows (whether it has the image, where a symbolic link leads, which sources
its operator allows) is checked there, by `shim.containers`.
"""

from __future__ import annotations

import posixpath
import re

from swell.core.errors import Infeasible
from swell.core.job import JobSpec, Launcher, Mount

UNCONTAINED = frozenset({Launcher.HOROVOD, Launcher.MPI})
"""Launchers that start processes on other hosts by themselves, outside of any container. In a cluster of Kubernetes
they run as an MPIJob, whose operator makes the hosts."""
OF_THE_SYSTEM = ("/proc", "/sys", "/dev")
MAX_ENV_BYTES = 60_000
"""Container runtimes refuse lines of 64 KiB in their files of variables."""

_PART = r"[A-Za-z0-9][A-Za-z0-9._+-]*"
_IMAGE = re.compile(rf"({_PART}(:\d+)?/)?{_PART}(/{_PART})*(:\w[\w.-]*)?(@{_PART}:[0-9A-Fa-f]+)?", re.ASCII)
MAX_IMAGE = 255
FROM_FILES = frozenset(
    {"dir", "oci", "oci-archive", "docker-archive", "docker-daemon", "containers-storage", "ostree", "sif", "tarball"}
)
"""podman reads `dir:/path` and the like as an image in files of the node, also in files that the user may not read."""
_UNFIT = re.compile(r'[\x00-\x1f\x7f,:"\\]')


def check_container(spec: JobSpec) -> None:
    """Raise Infeasible for a spec that no node could run. The message says what to write instead."""
    if not spec.image:
        _check_without_image(spec)
        return
    if not _names_an_image(spec.image):
        raise Infeasible(
            f"image {spec.image!r} is not the name of an image; write one such as pytorch/pytorch:2.4.0 or "
            "registry.example.org/team/train@sha256:…"
        )
    if spec.launcher in UNCONTAINED and spec.kubernetes is None:
        raise Infeasible(
            f"launcher {spec.launcher} starts processes by itself, outside of the image; use per-gpu, per-node or "
            "torchrun, leave out image, or run it as pods (`kubernetes:`)"
        )
    if spec.python:
        raise Infeasible(
            "python names an interpreter of the machine, and an image has its own; write it in the command"
        )
    for mount in spec.mounts:
        _check_mount(mount)
    _check_targets(spec)
    _check_checkpoints(spec)
    _check_env(spec)


def _names_an_image(text: str) -> bool:
    transport, colon, _ = text.partition(":")
    return len(text) <= MAX_IMAGE and bool(_IMAGE.fullmatch(text)) and not (colon and transport in FROM_FILES)


def _check_without_image(spec: JobSpec) -> None:
    if spec.mounts:
        raise Infeasible("mounts need an image: without one the job sees the machine's directories as they are")
    other = next((host for host, inside in spec.ports.items() if host != inside), None)
    if other:
        raise Infeasible(
            f"port {other} can be mapped to port {spec.ports[other]} for a job with an image only; without one the job "
            f"listens on the machine itself: write {spec.ports[other]}:{spec.ports[other]}"
        )


def _check_mount(mount: Mount) -> None:
    for what, path in (("source", mount.source), ("target", mount.target)):
        if _UNFIT.search(path) or not _encodable(path):
            raise Infeasible(
                f"mount {what} {path!r} has a character that container runtimes read as something else (a comma, "
                "colon, quote, backslash or control character); use a path without"
            )
        if not path.startswith("/"):
            raise Infeasible(f"mount {what} {path!r} is not absolute; write the whole path, beginning with /")
        if ".." in path.split("/"):
            raise Infeasible(f"mount {what} {path!r} has .. in it; write the path that it leads to")
    if posixpath.normpath(mount.target) in ("/", "//") or _below(mount.target, OF_THE_SYSTEM):
        raise Infeasible(f"mount target {mount.target!r} would cover the image's own system; choose another directory")
    if _below(mount.source, OF_THE_SYSTEM):
        raise Infeasible(f"mount source {mount.source!r} is part of the machine's system; GPUs need no mount")


def _check_targets(spec: JobSpec) -> None:
    targets = [posixpath.normpath(mount.target) for mount in spec.mounts]
    twice = next((target for target in targets if targets.count(target) > 1), None)
    if twice:
        raise Infeasible(f"two mounts have the target {twice}; give each its own")
    for path in (spec.workdir, spec.checkpoint_dir):
        if path.startswith("/") and (_UNFIT.search(path) or ".." in path.split("/") or not _encodable(path)):
            raise Infeasible(f"{path!r} is not a plain path; write an absolute one without .. and control characters")


def _check_checkpoints(spec: JobSpec) -> None:
    """Refuse checkpoints inside the image: they are lost with the container, so the job would start over after each
    stop."""
    path = posixpath.normpath(posixpath.join(spec.workdir, spec.checkpoint_dir))
    if not spec.checkpoint_dir or spec.kubernetes is not None or not path.startswith(("/", "..")):
        return  # no directory of its own, a pod (which has volumes), or in the job's own directory
    mount = _mount_of(spec, path)
    if mount is None or mount.read_only:
        why = "its mount is read-only" if mount else "no mount leads there"
        raise Infeasible(
            f"checkpoints in {path} would be lost with the container ({why}); mount a directory that it can write to "
            f"(mounts: [/home/me/checkpoints:{path}]), or leave out checkpoint_dir: the library's own directory is kept"
        )


def _check_env(spec: JobSpec) -> None:
    for name, value in {**spec.env, **spec.array_parameters}.items():
        if "\n" in value or "\r" in value or not _encodable(value):
            raise Infeasible(
                f"the value of {name} has a line break or is not valid text, which container runtimes cannot pass on; "
                "put it into a file and mount that, or write it in base64"
            )
        if len(value.encode()) > MAX_ENV_BYTES:
            raise Infeasible(
                f"the value of {name} is longer than {MAX_ENV_BYTES} bytes; put it into a file, and mount that"
            )


def _encodable(text: str) -> bool:
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def _below(path: str, tops: tuple[str, ...]) -> bool:
    normal = "/" + posixpath.normpath(path).lstrip("/")
    return any(normal == top or normal.startswith(top + "/") for top in tops)


def outside(spec: JobSpec, path: str) -> str:
    """The path on the machine for a path in the container, by the mount that it is in."""
    mount = _mount_of(spec, path)
    return mount.source.rstrip("/") + path[len(posixpath.normpath(mount.target)) :] if mount else path


def _mount_of(spec: JobSpec, path: str) -> Mount | None:
    """The innermost mount that contains the path."""
    for mount in sorted(spec.mounts, key=lambda mount: len(mount.target), reverse=True):
        target = posixpath.normpath(mount.target)
        if path == target or path.startswith(target + "/"):
            return mount
    return None
