"""What an executor asks about the workers of a run on a machine, and how it stops them. Runs on that machine.

Standard library only, like the shim it talks to: both files go to a node together.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import time

from swell.shim.shim import (
    KILL_NOW,
    Json,
    alive,
    claim,
    marked,
    read_json,
    send,
    stop_of,
    take_lock,
    touch,
    write_whole,
)

LOOK_SWEEP_S = 2.0
_BUSY = (errno.EAGAIN, errno.EACCES)


def look(run_directory: str, ranks: list[int]) -> Json:
    """The truth about a run's workers here: {"stop": …, "workers": [{"rank", "stage", "up_s", "pid", "mark", "exit"}]}.

    Stages: absent (no claim) · starting · up · ending (ended, not all swept yet) · ended · lost (its shim died with it,
    and what it left was swept)."""
    workers = [_look(os.path.join(run_directory, str(rank)), rank) for rank in ranks]
    return {"stop": stop_of(run_directory), "workers": workers}


def _look(directory: str, rank: int) -> Json:
    worker: Json = {"rank": rank, "stage": "absent", "up_s": None, "pid": 0, "mark": "", "exit": None}
    if not os.path.exists(os.path.join(directory, "claim")):
        return worker
    held = is_held(directory)  # before the record is read: it is written before the lock is let go
    claimed = read_json(os.path.join(directory, "claim")) or {}
    worker["mark"], worker["pid"] = claimed.get("mark", ""), claimed.get("pid", 0)
    with contextlib.suppress(OSError):
        worker["up_s"] = os.stat(os.path.join(directory, "up")).st_mtime
    worker["exit"] = read_json(os.path.join(directory, "exit.json"))
    worker["stage"] = _stage(directory, worker, held)
    return worker


def _stage(directory: str, worker: Json, held: bool) -> str:
    ended = worker["exit"] is not None
    if ended and os.path.exists(os.path.join(directory, "swept")):
        return "ended"
    if held:
        return "ending" if ended else "up" if worker["up_s"] is not None else "starting"
    if not sweep(worker["mark"], LOOK_SWEEP_S):
        return "ending"
    return "ended" if ended else "lost"


def is_held(directory: str) -> bool:
    """Is the shim alive? Asked only when there is a claim, so that a first shim never finds us on its lock."""
    try:
        fd = os.open(os.path.join(directory, "lock"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _BUSY:
            raise
        return True
    finally:
        os.close(fd)
    return False


def stop(run_directory: str, ranks: list[int], *, kill: bool) -> None:
    """Ask the whole run to stop, or kill it. What has not started yet never will."""
    if not os.path.isdir(run_directory):
        return
    if stop_of(run_directory) is None:
        touch(run_directory, "stop")
    for rank in ranks:
        stop_worker(os.path.join(run_directory, str(rank)), kill=kill)


def stop_worker(directory: str, *, kill: bool) -> None:
    """Signal the shim of one worker, or make sure that the worker never starts."""
    for _ in range(100):
        if os.path.exists(os.path.join(directory, "claim")):
            claimed = read_json(os.path.join(directory, "claim"))
            if not is_held(directory) or (claimed and _signal_shim(claimed, kill)):
                return
        elif fence(directory):
            return
        time.sleep(0.01)  # a shim is between its lock and its claim


def _signal_shim(claimed: Json, kill: bool) -> bool:
    return send(claimed["pid"], claimed["start"], KILL_NOW if kill else signal.SIGTERM)


def fence(directory: str) -> bool:
    """Take the claim ourselves, so that no late shim can. False: somebody is just taking it."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    lock = take_lock(directory)
    if lock is None:
        return False
    try:
        if not claim(directory, ""):
            return False
        record = {"code": None, "signal": None, "oom": False, "asked": "", "failed": {"step": "stopped"}, "last": ""}
        write_whole(directory, "exit.json", json.dumps({**record, "at_s": time.time()}).encode())
        touch(directory, "swept")
        return True
    finally:
        os.close(lock)


def sweep(mark: str, within_s: float) -> bool:
    """SIGKILL everything that carries the mark, until nothing is left. False: something would not die in time."""
    give_up = time.monotonic() + within_s
    while left := alive(marked(mark)):
        for pid, start in left.items():
            send(pid, start, signal.SIGKILL)
        if time.monotonic() > give_up:
            return False
        time.sleep(0.01)
    return True


def is_over(directory: str) -> bool:
    """Nothing of this worker can write any more."""
    if os.path.exists(os.path.join(directory, "swept")):
        return True
    return os.path.exists(os.path.join(directory, "claim")) and not is_held(directory)
