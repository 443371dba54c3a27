"""The daemon's store of checkpoints: of each job the latest copy that is whole, as plain files on this machine.

A directory per job: files named by their content, `.part` while they arrive, and `manifest`, which is written last.
What the manifest names is there and was checked against its hashes; what it does not name is of a copy that is on its
way, or of the one before. Blocking; called in threads.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import msgspec

from swell.core.ids import JobId
from swell.shim.checkpoints import PIECE, content_id, pieces_of
from swell.shim.files import write_whole

MANIFEST = "manifest"


class CopiedFile(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    size: int
    mode: int
    pieces: tuple[str, ...]  # hashes of its pieces

    @property
    def content(self) -> str:
        """Its name in the store, and on its way."""
        return content_id(list(self.pieces))


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint of a job. `epoch`: how far it is, in the job's unit."""

    epoch: int
    attempt: int
    files: tuple[CopiedFile, ...]
    named: bool = False  # of the directory that the job's user named, not of its own

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


class CopyStore:
    """`folder` is made if it is not there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)

    def manifest(self, job: JobId) -> Manifest | None:
        """Of the latest whole copy."""
        try:
            return msgspec.json.decode(self._of(job).joinpath(MANIFEST).read_bytes(), type=Manifest)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def arrived(self, job: JobId, file: CopiedFile) -> int:
        """How much of it is there: all of it, or whole pieces of what came before a transfer broke off."""
        folder = self._of(job)
        if (folder / file.content).exists():
            return file.size
        with contextlib.suppress(FileNotFoundError):
            size = (folder / f"{file.content}.part").stat().st_size
            return min(file.size, size) // PIECE * PIECE
        return 0

    def add(self, job: JobId, file: CopiedFile, offset: int, data: bytes) -> None:
        folder = self._of(job)
        folder.mkdir(mode=0o700, exist_ok=True)
        fd = os.open(folder / f"{file.content}.part", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(fd, data, offset)
        finally:
            os.close(fd)

    def seal(self, job: JobId, file: CopiedFile) -> bool:
        """All of it has arrived: checked from the disk, synced and named. False: it is not what its hashes say, and
        begins anew."""
        part = self._of(job) / f"{file.content}.part"
        if file.size and tuple(pieces_of(str(part))) != file.pieces:
            part.unlink(missing_ok=True)
            return False
        with part.open("ab") as written:
            os.fsync(written.fileno())
        part.replace(part.with_name(file.content))
        return True

    def keep(self, job: JobId, manifest: Manifest) -> None:
        """From now on this is the copy; files of the one before are deleted."""
        folder = self._of(job)
        folder.mkdir(mode=0o700, exist_ok=True)
        write_whole(str(folder), MANIFEST, msgspec.json.encode(manifest))
        wanted = {MANIFEST, *(file.content for file in manifest.files)}
        for path in folder.iterdir():
            if path.name not in wanted:
                path.unlink(missing_ok=True)

    def read(self, job: JobId, file: CopiedFile, offset: int) -> bytes:
        with (self._of(job) / file.content).open("rb") as kept:
            return os.pread(kept.fileno(), PIECE, offset)

    def jobs(self) -> list[JobId]:
        """Those of which there is something."""
        return [int(path.name) for path in self._folder.iterdir() if path.name.isdecimal()]

    def remove(self, job: JobId) -> None:
        shutil.rmtree(self._of(job), ignore_errors=True)

    def _of(self, job: JobId) -> Path:
        return self._folder / str(job)
