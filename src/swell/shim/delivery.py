"""What is brought to a machine once and used by many runs: snapshots of working files, the in-job library. And the
directories of jobs that are made from it. Runs on that machine.

Everything arrives as an archive named by its content, in parts, and counts only when it is whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
import time

from swell.shim.files import Json, read_json, write_whole

KEEP_S = 14 * 86400.0
"""An archive that no job was started from for so long is deleted; the daemon brings it again."""
OF_JOBS = ("work", "checkpoints", "jobs", "set-aside")
"""Directories with one directory per job. `jobs/7/stamp` says whose job 7 the others are of."""


class Deliveries:
    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        for name in ("archives", "library", *OF_JOBS):
            os.makedirs(os.path.join(cluster, name), mode=0o700, exist_ok=True)

    def _archive(self, name: str) -> str:
        return os.path.join(self._cluster, "archives", f"{name}.tar")

    def have(self, name: str) -> bool:
        """Is this archive here? Then it is in use from now on."""
        try:
            os.utime(self._archive(name))
        except FileNotFoundError:
            return False
        return True

    def take(self, name: str, offset: int, data: bytes, last: bool) -> None:
        """A part of an archive. Raises OSError if what has arrived is not what its name says."""
        part = f"{self._archive(name)}.part"
        with open(part, "r+b" if offset else "wb") as file:
            file.seek(offset)
            file.write(data)
            file.truncate()
        if not last:
            return
        if _digest(part) != name:
            os.unlink(part)
            raise OSError(f"archive {name} did not arrive as it was sent")
        os.rename(part, self._archive(name))

    def _library(self, name: str) -> str:
        target = os.path.join(self._cluster, "library", name)
        if not os.path.isdir(target):
            self._unpack(name, target)
        return target

    def prepare(self, job: int, stamp: Json, files: str, library: str) -> Json:
        """What a run needs here, in one request: {"need": archives to bring first} or {"need": [], "library": where
        the in-job library is}."""
        need = [name for name in (library, files) if name and not self.have(name)]
        if need:
            return {"need": need}
        self._job(job, stamp, files)
        return {"need": [], "library": self._library(library)}

    def _job(self, job: int, stamp: Json, files: str) -> None:
        """The directories of a job, made once: attempts after the first find what the job wrote there. Those of
        another job of the same id are set aside: never resumed from, never deleted."""
        if read_json(self._stamp(job)) != stamp:
            self._set_aside(job)
            os.makedirs(os.path.dirname(self._stamp(job)), mode=0o700, exist_ok=True)
            write_whole(os.path.dirname(self._stamp(job)), "stamp", json.dumps(stamp).encode())
        own = os.path.join(self._cluster, "work", str(job))
        if files and not os.path.isdir(own):
            self._unpack(files, own)
        for name in ("work", "checkpoints"):
            os.makedirs(os.path.join(self._cluster, name, str(job)), mode=0o700, exist_ok=True)

    def _stamp(self, job: int) -> str:
        return os.path.join(self._cluster, "jobs", str(job), "stamp")

    def _set_aside(self, job: int) -> None:
        for name in OF_JOBS:
            found = os.path.join(self._cluster, name, str(job))
            if os.path.isdir(found):
                aside = os.path.join(self._cluster, "foreign", f"{name}-{job}-{time.time_ns()}")
                os.makedirs(os.path.dirname(aside), mode=0o700, exist_ok=True)
                os.rename(found, aside)

    def foreign(self) -> list[str]:
        """Directories that were set aside."""
        with contextlib.suppress(FileNotFoundError):
            return sorted(os.listdir(os.path.join(self._cluster, "foreign")))
        return []

    def _unpack(self, name: str, target: str) -> None:
        fresh = tempfile.mkdtemp(prefix=f".{os.path.basename(target)}-", dir=os.path.dirname(target))
        try:
            with tarfile.open(self._archive(name)) as archive:
                safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
                archive.extractall(fresh, **safe)  # type: ignore[arg-type]  # noqa: S202 - checked when it was sent
            os.rename(fresh, target)
        except OSError:
            if not os.path.isdir(target):  # else another process was faster, with the same content
                raise
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def sweep(self) -> None:
        """Delete archives unused for long, and parts of archives that never became whole."""
        before_s = time.time() - KEEP_S
        folder = os.path.join(self._cluster, "archives")
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                if os.stat(os.path.join(folder, name)).st_mtime < before_s:
                    os.unlink(os.path.join(folder, name))


def _digest(path: str) -> str:
    seen = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1024 * 1024):
            seen.update(block)
    return seen.hexdigest()
