"""What an executor asks about the workers of a run on a machine, and how it stops them. Runs on that machine.

Standard library only, like the shim it talks to: both files go to a node together.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import time

from swell.shim.containers import preparing, remove
from swell.shim.files import Json, boot_id, boot_s, claim, read_json, take_lock, touch, touched_s, write_whole
from swell.shim.members import Members
from swell.shim.processes import Stat, send, stat_of
from swell.shim.shim import KILL_NOW

LOOK_SWEEP_S = 2.0
REMOVE_S = 15.0
_LINE = 256
"""More than a line of the journal is long."""
_BUSY = (errno.EAGAIN, errno.EACCES)


def look(run_directory: str, ranks: list[int]) -> Json:
    """The truth about a run's workers here: {"now", "boot", "stop", "epochs", "workers": [{"rank", "stage", …}]}.

    Times are `boot_s` of this machine, as is "now". Stages: absent (no claim) · starting · up · ending (ended, not all
    swept yet) · ended · lost (its shim died with it, and what it left was swept). A helper that somebody has stopped
    (SIGSTOP) is woken in passing: nothing of a run depends on it staying stopped."""
    workers = [_look(os.path.join(run_directory, str(rank)), rank) for rank in ranks]
    return {
        "now": boot_s(),
        "boot": boot_id(),
        "stop": touched_s(run_directory, "stop"),
        "epochs": read_journal(os.path.join(run_directory, "epochs")),
        "workers": workers,
    }


def read_journal(path: str) -> Json | None:
    """What the training itself noted (`sdk.journal`): "resumed", "done", "total", "began_s", "at_s" and "unit"."""
    try:
        with open(path, "rb") as file:
            first = file.readline(_LINE)
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LINE))
            last = file.read().rpartition(b"\n")[0].rpartition(b"\n")[2]
        resumed, _, began_s = first.split()[:3]
        done, total, at_s, *unit = last.split()
        return {
            "resumed": int(resumed),
            "done": int(done),
            "total": int(total),
            "began_s": float(began_s),
            "at_s": float(at_s),
            "unit": unit[0].decode() if unit else "epoch",
        }
    except (OSError, ValueError, IndexError):
        return None


def _look(directory: str, rank: int) -> Json:
    worker: Json = {
        "rank": rank,
        "stage": "absent",
        "up_s": None,
        "pid": 0,
        "mark": "",
        "boot": "",
        "exit": None,
        "preparing": "",
    }
    if not os.path.exists(os.path.join(directory, "claim")):
        _wake(read_json(os.path.join(directory, "lock")))
        return worker
    # In this order: the record is written before the sweep, and the sweep ends before the lock is let go.
    held = is_held(directory)
    swept = os.path.exists(os.path.join(directory, "swept"))
    claimed = read_json(os.path.join(directory, "claim")) or {}
    gone = held and bool(claimed) and _alive(claimed) is None
    for name in ("mark", "pid", "boot"):
        worker[name] = claimed.get(name, worker[name])
    worker["up_s"] = touched_s(directory, "up")
    worker["exit"] = read_json(os.path.join(directory, "exit.json"))
    ended = worker["exit"] is not None
    if swept:
        _wake(read_json(os.path.join(directory, "lock")))  # a guard that was asked to stop only has to end
        worker["stage"] = "ended" if ended else "lost"
    elif held and not gone:
        _wake(claimed)
        worker["preparing"] = preparing(directory)
        worker["stage"] = "ending" if ended else "up" if worker["up_s"] is not None else "starting"
    elif _sweep(directory, claimed):
        touch(directory, "swept")
        worker["stage"] = "ended" if ended else "lost"
    else:
        worker["stage"] = "ending"
    return worker


def _alive(named: Json) -> Stat | None:
    """The process that a lock or a claim names, if it lives: not another one with its pid, nor one of before a boot."""
    stat = stat_of(named["pid"])
    same = stat is not None and stat.start == named["start"] and _of_this_boot(named)
    return stat if same and stat is not None and stat.alive else None


def _of_this_boot(named: Json) -> bool:
    """Earlier versions did not write down the boot; what they started was of this one as long as it runs."""
    return bool(named.get("boot", boot_id()) == boot_id())


def _wake(named: Json | None) -> None:
    stat = _alive(named) if named else None
    if named is not None and stat is not None and stat.state == "T":
        send(named["pid"], named["start"], signal.SIGCONT)


def _helpers(directory: str) -> list[Json]:
    """The guard (it took the lock) and the shim (it made the claim), as far as they live."""
    named = [read_json(os.path.join(directory, name)) for name in ("lock", "claim")]
    return [one for one in named if one and _alive(one) is not None]


def _sweep(directory: str, claimed: Json) -> bool:
    """The shim has died without sweeping: do it for it, and for a guard that cannot. False: not all is gone yet."""
    guards = [guard for guard in _helpers(directory) if guard["pid"] != claimed.get("pid")]
    for guard in guards:
        _wake(guard)
    request = read_json(os.path.join(directory, "request.json"))
    if not _of_this_boot(claimed):  # only containers that the runtime remembers survive a boot
        return remove(request, REMOVE_S)
    members = Members(claimed.get("mark", ""), claimed.get("cgroup", ""))
    return members.sweep(LOOK_SWEEP_S, *(guard["pid"] for guard in guards)) and remove(request, REMOVE_S)


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
    if touched_s(run_directory, "stop") is None:
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
        _wake(read_json(os.path.join(directory, "lock")))
        time.sleep(0.01)  # a shim is between its lock and its claim


def _signal_shim(claimed: Json, kill: bool) -> bool:
    if claimed["pid"] == os.getpid():  # no shim: another thread of ours is just fencing this worker
        return False
    if not _of_this_boot(claimed):
        return True
    sent = send(claimed["pid"], claimed["start"], KILL_NOW if kill else signal.SIGTERM)
    _wake(claimed)
    return sent


def force(run_directory: str, ranks: list[int]) -> None:
    """The shims were asked to kill their workers and have not: do it past them. A shim that still cannot answer is
    killed too; its guard, or the next look, does the rest. One that only waits to write its record is left alone."""
    for rank in ranks:
        directory = os.path.join(run_directory, str(rank))
        claimed = read_json(os.path.join(directory, "claim"))
        if not claimed or touched_s(directory, "swept") is not None or not _of_this_boot(claimed):
            continue
        helpers = [helper["pid"] for helper in _helpers(directory)]
        swept = Members(claimed["mark"], claimed.get("cgroup", "")).sweep(LOOK_SWEEP_S, *helpers)
        stat = _alive(claimed)
        if swept and stat is not None and stat.state in "Tt":
            send(claimed["pid"], claimed["start"], signal.SIGKILL)


def fence(directory: str) -> bool:
    """Take the claim here, so that no late shim can. False: another process is just taking it."""
    os.makedirs(directory, mode=0o700, exist_ok=True)
    lock = take_lock(directory)
    if lock is None:
        return False
    try:
        if not claim(directory, ""):
            return False
        record = {"code": None, "signal": None, "oom": False, "asked": "", "failed": {"step": "stopped"}, "last": ""}
        when = {"boot_s": boot_s(), "boot": boot_id()}
        write_whole(directory, "exit.json", json.dumps({**record, **when}).encode())
        touch(directory, "swept")
        return True
    finally:
        os.close(lock)


def is_over(directory: str) -> bool:
    """Nothing of this worker can write any more."""
    if os.path.exists(os.path.join(directory, "swept")):
        return True
    return os.path.exists(os.path.join(directory, "claim")) and not is_held(directory)
