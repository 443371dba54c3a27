"""Images for the tests, made from root file systems: no registry is asked. podman's own storage keeps them."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

BUSYBOX = "localhost/swell-test-busybox:2"
PYTHON = "localhost/swell-test-python:2"
OPTIONS = ("--runtime=runc", "--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096")
"""What a container needs on the machines of the tests: their operator's choice, as in a configuration."""


def podman(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["podman", *words], capture_output=True, text=True, check=False, timeout=300)


def _need(*programs: str) -> None:
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}; `make system-packages` installs it")


def _import(name: str, fill: Callable[[Path], None]) -> str:
    _need("podman", "runc")
    if podman("image", "exists", name).returncode == 0:
        return name
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        root.mkdir()
        fill(root)
        tar = Path(folder) / "root.tar"
        subprocess.run(["tar", "-C", str(root), "-cf", str(tar), "."], check=True)
        done = podman("import", str(tar), name)
        assert done.returncode == 0, done.stderr
    return name


@functools.cache
def busybox() -> str:
    """2 MB: a static shell."""
    _need("busybox")
    return _import(BUSYBOX, _fill_busybox)


def _fill_busybox(root: Path) -> None:
    (root / "bin").mkdir()
    program = shutil.which("busybox") or ""
    shutil.copy(program, root / "bin" / "busybox")
    for name in subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if name != "busybox":
            (root / "bin" / name).symlink_to("busybox")


@functools.cache
def python() -> str:
    """200 MB: Debian with Python, pip and numpy; takes about two minutes to make, once."""
    _need("debootstrap")
    return _import(PYTHON, _fill_python)


def _fill_python(root: Path) -> None:
    words = ["--variant=minbase", "--include=python3,python3-numpy,python3-pip", "bookworm", str(root)]
    subprocess.run(["debootstrap", *words], check=True, stdout=subprocess.DEVNULL)
    (root / "usr/bin/python").symlink_to("python3")
    (root / "usr/lib/python3.11/EXTERNALLY-MANAGED").unlink()  # pip installs, as in Docker's own images of Python
    for rest in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale"):
        shutil.rmtree(root / rest, ignore_errors=True)


def ours(**labels: str) -> list[str]:
    """Names of the containers there are with these labels."""
    filters = [f"--filter=label={name}={value}" for name, value in labels.items()]
    return podman("ps", "--all", "--format={{.Names}}", *filters).stdout.split()
