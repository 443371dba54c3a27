"""Packs the folder `shim`, which is delivered to machines, as one archive named by its content."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from swell import shim

_FRONT = b'"""What of Swell runs on this machine."""\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    name: str  # its hash
    data: bytes


def archive_of(files: Mapping[str, bytes], executable: frozenset[str] = frozenset()) -> Archive:
    """The same bytes for the same files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755 if name in executable else 0o644
            archive.addfile(info, io.BytesIO(content))
    data = buffer.getvalue()
    return Archive(name=hashlib.sha256(data).hexdigest(), data=data)


@cache
def agent_archive() -> Archive:
    folder = Path(shim.__file__).parent
    files = {f"swell/shim/{path.name}": path.read_bytes() for path in folder.glob("*.py")}
    return archive_of({"swell/__init__.py": _FRONT, **files})


@cache
def boot_program() -> bytes:
    """The program that is sent first to the fixed command of a connection."""
    source = (Path(shim.__file__).parent / "boot.py").read_bytes()
    return f"{len(source)}\n".encode() + source
