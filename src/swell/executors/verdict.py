"""Decides what the facts about a run's workers mean: whether the run has ended, and why. Pure; the shim gathers the
facts, and the executors call this."""

from __future__ import annotations

import errno
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from swell.core.events import EXIT_STOPPED, ExitReason
from swell.core.exits import reason_not_started, reason_of_exit
from swell.core.ids import RunId
from swell.core.observations import RunGone
from swell.executors.container_ends import container_reason, why_not_contained
from swell.ports import Launch

SERVER = "server"
"""Role of workers that serve the others and never end by themselves; they are stopped when the others have finished."""


class Stage(StrEnum):
    ABSENT = "absent"  # no claim: never started, may be started
    STARTING = "starting"
    UP = "up"
    ENDING = "ending"  # ended; remaining processes are being killed
    ENDED = "ended"
    LOST = "lost"  # its shim died with it; remaining processes were killed


OVER = frozenset({Stage.ENDED, Stage.LOST})


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A worker as kept on disk, without secrets."""

    rank: int
    node: str
    role: str = "worker"
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """The workers of a run. Written before any is started, so that a later process can take the run over."""

    run: RunId
    members: tuple[Member, ...]
    grace_s: float

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(member.rank for member in self.members)

    def to_json(self) -> dict[str, Any]:
        members = [{"rank": m.rank, "node": m.node, "role": m.role, "gpus": list(m.gpus)} for m in self.members]
        return {"run": str(self.run), "grace_s": self.grace_s, "members": members}


def roster_of(launch: Launch) -> Roster:
    members = tuple(Member(rank=w.rank, node=w.node, role=w.role, gpus=w.gpus) for w in launch.workers)
    return Roster(run=launch.run, members=members, grace_s=launch.grace_s)


def roster_from_json(data: Mapping[str, Any]) -> Roster:
    members = tuple(
        Member(rank=m["rank"], node=m["node"], role=m["role"], gpus=tuple(m["gpus"])) for m in data["members"]
    )
    return Roster(run=RunId.parse(data["run"]), members=members, grace_s=data["grace_s"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The contents of the shim's directory of one worker."""

    rank: int
    stage: Stage
    up_s: float | None = None
    pid: int = 0  # of its shim
    mark: str = ""
    preparing: str = ""  # what is being fetched before it can start
    exit: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """The progress of the training, from the run's own record."""

    resumed: int  # done when this run began
    done: int  # by now, over all attempts
    total: int  # 0: unset
    began_s: float
    at_s: float  # of the last one
    unit: str = "epoch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One look at all workers of a run. `stop_s`: when the run was asked to stop."""

    workers: tuple[Seen, ...]
    stop_s: float | None = None
    epochs: Epochs | None = None

    @property
    def up_s(self) -> float | None:
        """When the last worker came up; None if one has not yet."""
        times = [seen.up_s for seen in self.workers if seen.up_s is not None]
        return max(times) if times and len(times) == len(self.workers) else None

    @property
    def preparing(self) -> str:
        return next((seen.preparing for seen in self.workers if seen.preparing), "")

    @property
    def untouched(self) -> bool:
        """Whether some worker was never claimed: the run has to be launched (again)."""
        return any(seen.stage is Stage.ABSENT for seen in self.workers)

    @property
    def over(self) -> bool:
        return all(seen.stage in OVER for seen in self.workers)


def sight_from_json(looks: Sequence[Mapping[str, Any]], now_s: float) -> Sight:
    """One sight from the reports of all nodes. Times are converted to the daemon's clock by their age."""
    return together([_sight(look, now_s) for look in looks])


def _sight(look: Mapping[str, Any], now_s: float) -> Sight:
    noted, epochs = look.get("epochs"), None
    if noted:
        began_s, at_s = (_at_s(look, noted[name], now_s) for name in ("began_s", "at_s"))
        counts = {name: noted[name] for name in ("resumed", "done", "total")}
        unit = noted.get("unit", "epoch")  # older agents do not report it
        epochs = Epochs(began_s=began_s, at_s=at_s, unit=unit, **counts)
    return Sight(
        workers=tuple(_seen(worker, look, now_s) for worker in look["workers"]),
        stop_s=None if look["stop"] is None else _at_s(look, look["stop"], now_s),
        epochs=epochs,
    )


def together(sights: Sequence[Sight]) -> Sight:
    """Merges the sights of one run from several nodes. Epochs come from the node with rank 0."""
    workers = sorted((seen for sight in sights for seen in sight.workers), key=lambda seen: seen.rank)
    stops = [sight.stop_s for sight in sights if sight.stop_s is not None]
    epochs = max((sight.epochs for sight in sights if sight.epochs), key=lambda noted: noted.done, default=None)
    return Sight(workers=tuple(workers), stop_s=min(stops, default=None), epochs=epochs)


def _seen(worker: Mapping[str, Any], look: Mapping[str, Any], now_s: float) -> Seen:
    up_s, exit_ = worker["up_s"], worker["exit"]
    this_boot = worker["boot"] in ("", look["boot"])
    if exit_ is not None:
        exit_ = {**exit_, "at_s": _at_s(look, exit_.get("boot_s") if this_boot else None, now_s)}
    return Seen(
        rank=worker["rank"],
        stage=Stage(worker["stage"]),
        up_s=None if up_s is None else _at_s(look, up_s if this_boot else None, now_s),
        pid=worker["pid"],
        mark=worker["mark"],
        preparing=worker.get("preparing", ""),
        exit=exit_,
    )


def _at_s(look: Mapping[str, Any], boot_s: float | None, now_s: float) -> float:
    """Converts a node's time to the daemon's. A time of an earlier boot (None) is unknown: now is used."""
    return now_s if boot_s is None else now_s - max(0.0, look["now"] - boot_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How one worker ended."""

    rank: int
    reason: ExitReason
    at_s: float
    code: int | None = None
    message: str = ""


_WELL = frozenset({ExitReason.FINISHED, ExitReason.STOPPED})


def end_of(seen: Seen, stop_s: float | None, now_s: float) -> End | None:
    """How this worker ended; None: not yet. Known before its remaining processes are killed, so that its gang can be
    stopped at once."""
    if seen.stage is Stage.LOST:
        message = "what held the process was killed, or the machine went down; no exit code is known"
        return End(rank=seen.rank, reason=ExitReason.SHIM_LOST, at_s=now_s, message=message)
    if seen.exit is None:
        return None
    exit_, at_s = seen.exit, float(seen.exit["at_s"])
    if exit_["failed"]:
        return _not_started(seen.rank, exit_["failed"], at_s)
    asked = bool(exit_["asked"]) or (exit_["code"] != 0 and stop_s is not None and at_s >= stop_s)
    reason = reason_of_exit(
        code=exit_["code"],
        by_signal=exit_["signal"] is not None,
        out_of_memory=exit_["oom"],
        asked=asked,
        lease_over=exit_["asked"] == "lease",
    )
    return End(rank=seen.rank, reason=reason, at_s=at_s, code=exit_["code"], message=_message(exit_, reason))


def _message(exit_: Mapping[str, Any], reason: ExitReason) -> str:
    if reason is ExitReason.NODE_LOST:
        return "its machine lost the daemon for longer than its lease, and ended it; it continues elsewhere"
    how = how_it_ended(reason, exit_["code"], exit_["signal"])
    known = reason is ExitReason.OUT_OF_MEMORY or (reason is ExitReason.STOPPED and exit_["signal"] is not None)
    return f"{how}: {exit_['last']}" if how and exit_["last"] and not known else how


def how_it_ended(reason: ExitReason, code: int | None, number: int | None) -> str:
    """For people: exit code or signal of a worker; empty if it ended without an error. Callers with its log append the
    line that explains it."""
    if reason is ExitReason.FINISHED or code == EXIT_STOPPED:
        return ""
    if reason is ExitReason.OUT_OF_MEMORY:
        return "killed by the system for using too much memory; ask for more memory, or use less (smaller batches)"
    return f"ended by {signal_name(number)}" if number is not None else f"exit code {code}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _not_started(rank: int, failed: Mapping[str, Any], at_s: float) -> End:
    if failed["step"] == "stopped":
        return End(rank=rank, reason=ExitReason.STOPPED, at_s=at_s, message="stopped before it started")
    if contained := container_reason(failed):
        return End(rank=rank, reason=contained, at_s=at_s, message=why_not_contained(failed))
    theirs = failed["step"] in ("cwd", "exec")
    reason = reason_not_started(failed.get("errno")) if theirs else ExitReason.NODE_FULL
    return End(rank=rank, reason=reason, at_s=at_s, message=why_not_started(failed))


def why_not_started(failed: Mapping[str, Any]) -> str:
    """For people: what is missing, and what to do."""
    step, said = failed["step"], failed.get("said", "")
    if step == "cwd":
        return (
            f"the working directory {failed['cwd']} cannot be entered ({said}); it must exist on the node that runs "
            "the job: check `workdir`, or leave it out to run in the files you submit"
        )
    if step == "exec":
        return _why_not_executed(failed)
    if step == "lease":
        return "the machine lost the daemon before it began; it is tried again"
    if step == "fork":
        return f"the node could not start one more process ({said}); it may be out of memory or processes"
    if step == "log":
        return f"cannot write the log ({said}); make room on the node's disk"
    return f"the process could not be set up: {said}"


def _why_not_executed(failed: Mapping[str, Any]) -> str:
    program, number = failed["program"], failed["errno"]
    if number == errno.ENOENT and failed["there"]:
        return f"cannot start {program}: its first line (#!) names an interpreter that is not on the node"
    if number == errno.ENOENT:
        where = "" if "/" in program else " on the PATH of the job"
        return (
            f"cannot start {program}: there is no such program{where} (in {failed['cwd'] or '/'}); "
            "check the command, or submit the file along with the job"
        )
    if number == errno.EACCES:
        return f"cannot start {program}: it is not executable; `chmod +x` it, or run it as `python {program}`"
    if number == errno.ENOEXEC:
        return f"cannot start {program}: it is no program; a script needs a first line such as #!/usr/bin/env python3"
    if number == errno.E2BIG:
        return f"cannot start {program}: its arguments and environment are too large together; pass data in files"
    return f"cannot start {program}: {failed['said']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The ends known so far: those of `workers` decide the end of the run, those of `servers` do not."""

    workers: tuple[End, ...]
    servers: tuple[End, ...]

    @property
    def first_failure(self) -> End | None:
        """The failure that caused the others. A lost worker comes first: others fail because of it, often noticed
        earlier."""
        failed = [end for end in (*self.workers, *self.servers) if end.reason not in _WELL]
        return min(failed, key=lambda end: (end.reason is not ExitReason.SHIM_LOST, end.at_s, end.rank), default=None)


def ends_of(roster: Roster, sight: Sight, now_s: float) -> Ends:
    return sorted_ends(roster, [end for seen in sight.workers if (end := end_of(seen, sight.stop_s, now_s))])


def sorted_ends(roster: Roster, ends: Sequence[End]) -> Ends:
    servers = {member.rank for member in roster.members if member.role == SERVER}
    if len(servers) == len(roster.members):
        servers = set()
    return Ends(
        workers=tuple(end for end in ends if end.rank not in servers),
        servers=tuple(end for end in ends if end.rank in servers),
    )


def breaks_gang(roster: Roster, ends: Ends) -> End | None:
    """The end after which the rest of the run must stop: a failure, a stop, or all workers but the servers finished."""
    if ends.first_failure:
        return ends.first_failure
    stopped = [end for end in (*ends.workers, *ends.servers) if end.reason is ExitReason.STOPPED]
    if stopped:
        return min(stopped, key=lambda end: (end.at_s, end.rank))
    servers = sum(member.role == SERVER for member in roster.members)
    all_done = servers and ends.workers and len(ends.workers) == len(roster.members) - servers
    return max(ends.workers, key=lambda end: (end.at_s, end.rank)) if all_done else None


def verdict(roster: Roster, sight: Sight, now_s: float) -> RunGone | None:
    """How the run ended; None: a worker has not ended yet."""
    return conclusion(roster, ends_of(roster, sight, now_s)) if sight.over else None


def conclusion(roster: Roster, ends: Ends) -> RunGone:
    """How a run ended whose workers have all ended."""
    last_s = max(end.at_s for end in (*ends.workers, *ends.servers))
    stopped = next((end for end in ends.workers if end.reason is ExitReason.STOPPED), None)
    decisive = ends.first_failure or stopped or ends.workers[0]
    message = decisive.message
    if message and len(roster.members) > 1 and decisive.reason not in _WELL:
        message = f"rank {decisive.rank}: {message}"
    return RunGone(run=roster.run, reason=decisive.reason, at_s=last_s, exit_code=decisive.code, message=message)
