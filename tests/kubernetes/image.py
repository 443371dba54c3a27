"""A small image with a shell, python3 and numpy, made of this machine's own files: no registry is needed.

Kept outside the repository (the user's cache directory) and made once.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

NAME = "docker.io/swell/trainer:1"
VERSION = "3"
PYTHON = Path("/usr/bin/python3.11")
PROGRAMS = (PYTHON, *(Path("/bin") / name for name in ("dash", "sleep", "cat", "mkdir", "ls", "kill")))
_LEFT_OUT = ("test", "tests", "idlelib", "tkinter", "ensurepip", "distutils", "lib2to3", "pydoc_data", "__pycache__")


def missing() -> str:
    """Why the image cannot be made here; empty if it can."""
    absent = [str(path) for path in PROGRAMS if not path.exists()]
    return f"no {', '.join(absent)} here to make an image of" if absent else ""


def archive() -> Path:
    """The image as a docker archive."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swell-tests"
    target = cache / f"trainer-{VERSION}.tar"
    if not target.exists():
        root = cache / f"trainer-{VERSION}.root"
        shutil.rmtree(root, ignore_errors=True)
        _fill(root)
        _pack(root, target)
    return target


def _fill(root: Path) -> None:
    for name in ("usr/bin", "usr/lib", "tmp", "etc", "root", "usr/local"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    (root / "usr/lib64").mkdir()
    for program in PROGRAMS:
        shutil.copy2(program.resolve(), root / "usr/bin" / program.name)
    for name, target in (("sh", "dash"), ("python3", "python3.11"), ("python", "python3.11")):
        (root / "usr/bin" / name).symlink_to(target)
    library = Path("/usr/lib/python3.11")
    shutil.copytree(
        library, root / "usr/lib/python3.11", symlinks=False, ignore=shutil.ignore_patterns(*_LEFT_OUT, "config-3*")
    )
    packages = root / "usr/local/lib/python3.11/dist-packages"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "-q", "--python-version", "3.11", "--only-binary=:all:"),
            *("--no-deps", "--target", str(packages), "numpy<2.3"),
        ],
        check=True,
    )
    for directory in packages.rglob("tests"):
        shutil.rmtree(directory, ignore_errors=True)
    objects = [*root.glob("usr/lib/python3.11/lib-dynload/*.so"), *packages.rglob("*.so")]
    for found in _shared([*PROGRAMS, *objects]):
        place = root / "usr" / str(found).removeprefix("/usr").lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(found.resolve(), place)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n", encoding="ascii")


def _shared(objects: list[Path]) -> list[Path]:
    """The libraries of this machine that these need, by the names they need them by."""
    found: dict[Path, None] = {}
    for path in objects:
        said = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=False).stdout
        for match in re.finditer(r"(?:=> )?(/\S+\.so\S*) \(0x", said):
            if match[1].startswith(("/lib", "/usr/lib")):
                found[Path(match[1])] = None
    return list(found)


def _pack(root: Path, target: Path) -> None:
    layer = target.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar:
        tar.add(root, arcname=".")
    digest = hashlib.sha256(layer.read_bytes()).hexdigest()
    path = "PATH=/usr/local/bin:/usr/bin:/bin"
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": [path]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [NAME], "Layers": ["layer.tar"]}]
    files = target.with_suffix(".parts")
    files.mkdir(exist_ok=True)
    (files / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (files / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    layer.replace(files / "layer.tar")
    part = target.with_suffix(".part")
    with tarfile.open(part, "w") as tar:
        for name in ("manifest.json", "config.json", "layer.tar"):
            tar.add(files / name, arcname=name)
    part.replace(target)
    shutil.rmtree(files)
    shutil.rmtree(root)


if __name__ == "__main__":
    print(archive())
