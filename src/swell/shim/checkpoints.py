"""Checkpoints of jobs on this machine: set aside to be copied, and put in place where a job continues.

What is to be copied is set aside by hard links, which cost nothing and outlive what the training deletes meanwhile.
Files travel in pieces, each with its hash; a file is named by the hash of its pieces' hashes. What arrives is put in
place when all of it is there. A nonce that was left in the directory, read through another machine, tells that both see
the same one. Standard library only, free of whatever carries the pieces: a pod can use it too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import secrets
import shutil
import stat
import threading
from typing import Callable, Dict, List, Tuple

from swell.shim.checkpoint_files import PROGRESS, Found, finished, progress_of, unsettled, visible
from swell.shim.files import Json, boot_id, boot_s, read_json, sync_directory, write_whole

WAIT_S = 0.5
"""A call waits so long for files to be set aside; the caller asks again for the rest."""
PIECE = 4 * 1024 * 1024
"""So much of a file at once."""
MAX_FILES = 100_000


class Checkpoints:
    """`folder` holds a directory per job: `out` has what is set aside, `in` what has arrived."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._tasks: Dict[int, _Task] = {}
        self._seen: Dict[int, Tuple[List[Found], float]] = {}

    def look(self, job: int, own: str, named: str) -> Json:
        """What the directory of a job has: how far it is, how many files, and the nonce of its mark."""
        base, found = _base(own, named)
        return {
            "nonce": str((read_json(os.path.join(named or own, _mark(job))) or {}).get("nonce", "")),
            "progress": progress_of(found, _noted(base)),
            "files": len([file for file in found if file.path != PROGRESS]),
        }

    def mark(self, job: int, own: str, named: str, nonce: str) -> None:
        """Leave a nonce in the directory, if it exists: machines that read the same nonce see the same directory."""
        if os.path.isdir(named or own):
            write_whole(named or own, _mark(job), json.dumps({"nonce": nonce}).encode())

    # ---- from here ----

    def set_aside(self, job: int, own: str, named: str, over: bool, limit: int) -> Json:
        """The newest finished checkpoint, with the hash of each file. `why` says that there is none: `writing`, `busy`,
        `none`, or `large`. `over`: nobody writes there any more."""
        with self._lock:
            task = self._tasks.get(job)
            if task is None:
                task = self._tasks[job] = _Task(lambda: self._set_aside(job, own, named, over, limit))
        if not task.ended.wait(WAIT_S):
            return {"why": "busy"}
        with self._lock:
            self._tasks.pop(job, None)
        return task.result()

    def _set_aside(self, job: int, own: str, named: str, over: bool, limit: int) -> Json:
        base, found = _base(own, named)
        files = finished(found, math.inf if over else self._unchanged_s(job, found))
        if not files:
            return {"why": "writing" if files is None else "none"}
        size = sum(file.size for file in files)
        if size > limit:
            return {"why": "large", "bytes": size}
        out, listed = os.path.join(self._folder, str(job), "out"), [list(file) for file in files]
        known = read_json(os.path.join(out, "manifest")) or {}
        if known.get("found") == listed:
            return dict(known)
        hashes = self._linked(base, files, out)
        if hashes is None:
            return {"why": "writing"}
        manifest = {
            "found": listed,
            "named": base == named,
            "files": [[file.path, file.size, file.mode, pieces] for file, pieces in zip(files, hashes)],
            "progress": progress_of(files, _noted(base)),
        }
        write_whole(out, "manifest", json.dumps(manifest).encode())
        return manifest

    def _unchanged_s(self, job: int, found: List[Found]) -> float:
        """Since when those files are the same that nobody writes whole. By this machine's own clock: times of files
        may be of a server with another one."""
        now_s, others = boot_s(), unsettled(found)
        known, since_s = self._seen.get(job, ([], now_s))
        if known != others or job not in self._seen:
            since_s = now_s
            self._seen[job] = (others, since_s)
        return now_s - since_s

    def _linked(self, base: str, files: List[Found], out: str) -> List[List[str]] | None:
        """Links to these files in `out`, named by their content; None if one of them has changed meanwhile."""
        fresh = f"{out}.{secrets.token_hex(4)}"
        os.makedirs(fresh, mode=0o700)
        try:
            hashes = []
            for file in files:
                taken = os.path.join(fresh, "taken")
                _link(os.path.join(base, file.path), taken)
                hashes.append(pieces_of(taken))
                os.replace(taken, os.path.join(fresh, content_id(hashes[-1])))
            if any(_found(base, file.path) != file for file in files if file.path != PROGRESS):
                return None
            shutil.rmtree(out, ignore_errors=True)
            os.rename(fresh, out)
            return hashes
        except FileNotFoundError:  # the training has deleted it: there is a newer one
            return None
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def read(self, job: int, content: str, offset: int) -> bytes:
        """A piece of what is set aside."""
        with open(os.path.join(self._folder, str(int(job)), "out", _plain(content)), "rb") as file:
            return os.pread(file.fileno(), PIECE, offset)

    # ---- to here ----

    def arrived(self, job: int, content: str) -> int:
        """How many bytes of this file are here, in whole pieces: a transfer that broke off continues there."""
        with contextlib.suppress(OSError):
            size = os.stat(self._incoming(job, content)).st_size
            return size - size % PIECE
        return 0

    def take(self, job: int, content: str, offset: int, digest: str, data: bytes) -> None:
        """A piece. Raises OSError if it is not what its hash says."""
        if hashlib.sha256(data).hexdigest() != digest:
            raise OSError(f"a piece of {content} did not arrive as it was sent")
        path = self._incoming(job, content)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(fd, data, offset)
        finally:
            os.close(fd)

    def put_in_place(self, job: int, own: str, named: str, files: List[List[object]]) -> None:
        """All has arrived. A job's own directory is replaced as a whole; in one that its user named (`named` is not
        empty), files are written over and none is deleted."""
        target = named or f"{own}.{secrets.token_hex(4)}"
        try:
            for path, size, mode, content in files:
                self._place(job, os.path.join(target, _inside(str(path))), int(str(size)), int(str(mode)), str(content))
            if not named:
                _swap(target, own)
        finally:
            if not named:
                shutil.rmtree(target, ignore_errors=True)
        shutil.rmtree(os.path.dirname(self._incoming(job, "")), ignore_errors=True)

    def _place(self, job: int, path: str, size: int, mode: int, content: str) -> None:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        beside = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{secrets.token_hex(4)}")
        come = self._incoming(job, content)
        if size and os.stat(come).st_nlink == 1:
            _link(come, beside)
        else:  # empty, or the content of another file too: each has an inode of its own
            _copy(come, beside)
        with open(beside, "rb+") as file:
            os.fsync(file.fileno())
            if os.fstat(file.fileno()).st_size != size:
                raise OSError(f"{path} did not arrive whole")
        os.chmod(beside, mode & 0o777)
        os.replace(beside, path)

    def _incoming(self, job: int, content: str) -> str:
        """Pieces are not synced one by one: after a boot they are sent again."""
        return os.path.join(self._folder, str(int(job)), f"in-{boot_id()}", _plain(content))


class _Task:
    """Work in a thread of its own, behind what else the machine does."""

    def __init__(self, work: Callable[[], Json]) -> None:
        self.ended = threading.Event()
        self._work = work
        self._found: Json = {}
        self._error: Exception | None = None
        threading.Thread(target=self._run, name="checkpoint", daemon=True).start()

    def _run(self) -> None:
        try:
            with contextlib.suppress(OSError, AttributeError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
            self._found = self._work()
        except Exception as error:
            self._error = error
        finally:
            self.ended.set()

    def result(self) -> Json:
        if self._error is not None:
            raise self._error
        return self._found


def _base(own: str, named: str) -> Tuple[str, List[Found]]:
    """Where the job saves, with what is there: in its own directory, else in the one that its user named."""
    found = visible(_listing(own))
    if not named or any(file.path != PROGRESS for file in found):
        return own, found
    return named, visible(_listing(named), named=True)


def _listing(folder: str) -> List[Found]:
    """Plain files. Links are left out: what they point to is not the job's to copy."""
    found: List[Found] = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        below = os.path.relpath(place, folder)
        for name in names:
            path = name if below == "." else os.path.join(below, name)
            with contextlib.suppress(OSError, UnicodeEncodeError):
                path.encode()
                if (file := _found(folder, path)) is not None:
                    found.append(file)
        if len(found) > MAX_FILES:
            raise OSError(f"{folder} has more than {MAX_FILES} files: they are not copied")
    return found


def _found(folder: str, path: str) -> Found | None:
    seen = os.lstat(os.path.join(folder, path))
    if not stat.S_ISREG(seen.st_mode):
        return None
    return Found(path, seen.st_size, seen.st_mtime_ns, seen.st_ino, stat.S_IMODE(seen.st_mode) & 0o777)


def _mark(job: int) -> str:
    return f".swell-checkpoint-{int(job)}"


def _noted(base: str) -> int | None:
    try:
        return int((read_json(os.path.join(base, PROGRESS)) or {})["epochs_done"])
    except (OSError, KeyError, ValueError, TypeError):
        return None


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or another user's file
        shutil.copyfile(source, target, follow_symlinks=False)


def _swap(fresh: str, target: str) -> None:
    """A crash in between leaves neither: the next look finds no checkpoint, and the daemon brings it again."""
    os.makedirs(fresh, mode=0o700, exist_ok=True)
    old = f"{target}.{secrets.token_hex(4)}"
    with contextlib.suppress(FileNotFoundError):
        os.rename(target, old)
    os.rename(fresh, target)
    sync_directory(os.path.dirname(target))
    shutil.rmtree(old, ignore_errors=True)


def _copy(source: str, target: str) -> None:
    if os.path.exists(source):
        shutil.copyfile(source, target, follow_symlinks=False)
    else:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def pieces_of(path: str) -> List[str]:
    """Hashes of a file's pieces."""
    found = []
    with open(path, "rb") as file:
        while block := file.read(PIECE):
            found.append(hashlib.sha256(block).hexdigest())
    return found


def content_id(pieces: List[str]) -> str:
    return hashlib.sha256("".join(pieces).encode()).hexdigest()


def _plain(digest: str) -> str:
    if not all(letter in "0123456789abcdef" for letter in digest):
        raise OSError(f"{digest!r} is no hash")
    return digest


def _inside(path: str) -> str:
    parts = path.split("/")
    if path.startswith("/") or not all(parts) or ".." in parts or "\0" in path:
        raise OSError(f"{path!r} is no path inside of a checkpoint")
    return path
