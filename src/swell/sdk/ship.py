"""Carries the in-job library to where jobs run: a directory to put on PYTHONPATH.

It holds `swell` (this package's front and `swell.sdk`) and `kubernetesdlprofile`, so that `import swell` means the same
in a job as where Swell is installed. Where it is installed too, the rest of the package stays importable beside it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
_BESIDE = """
# Added in shipping: what is installed beside (the command line, say) stays importable from within a job.
__path__ = __import__("pkgutil").extend_path(__path__, __name__)
"""


_PYTHON = b"""#!/bin/sh
# First on the PATH of a job with `python:` in its file.
exec "$SWELL_PYTHON" "$@"
"""
PROGRAMS = ("bin/python", "bin/python3")
"""What `python` is in a job that chose its interpreter: a link to that would not find its packages."""


def files() -> dict[str, bytes]:
    """Path -> content of everything that ships, in order of path."""
    found = {"swell/__init__.py": (_PACKAGE / "__init__.py").read_bytes() + _BESIDE.encode()}
    found.update(dict.fromkeys(PROGRAMS, _PYTHON))
    for root, name in (
        (_PACKAGE / "sdk", "swell/sdk"),
        (_PACKAGE.parent / "kubernetesdlprofile", "kubernetesdlprofile"),
    ):
        for path in root.rglob("*.py"):
            found[f"{name}/{path.relative_to(root).as_posix()}"] = path.read_bytes()
    return dict(sorted(found.items()))


def digest() -> str:
    """A hash of the content, so that two versions never share a directory."""
    seen = hashlib.sha256()
    for name, content in files().items():
        seen.update(f"{name} {len(content)}\n".encode() + content)
    return seen.hexdigest()[:16]


def ship(into: Path) -> Path:
    """The directory for PYTHONPATH, made under `into` if it is not there. Old versions stay for runs that use them."""
    target = into / digest()
    if target.is_dir():
        return target
    beside = into / f".{target.name}.{os.getpid()}"
    try:
        for name, content in files().items():
            _write(beside / name, content)
        for name in PROGRAMS:
            (beside / name).chmod(0o755)
        beside.rename(target)
    except OSError:
        if not target.is_dir():  # else another process was faster
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return target


def _write(path: Path, content: bytes) -> None:
    """On disk before the directory gets its name: a power cut must not leave one with empty files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
