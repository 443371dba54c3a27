"""The world of scripted executors: machines with links that can fail, and workers that follow scripts.

It outlives executors, as machines outlive daemons. Times are those of the machines' own clock, which never goes back.
Nothing here knows of a daemon. Nothing happens before a call of `step`, which then applies each change at its due time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from swell.core.ids import JobId, RunId
from swell.core.resources import Node
from swell.executors.verdict import Roster, Seen, Sight, Stage
from swell.ports import Answer, Done, Launch, Unknown, Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What one worker does. Times in seconds from its launch (`start_s`), from its start (`lasts_s`, `lost_s`), or from
    SIGTERM (`stop_s`; None: it ignores SIGTERM)."""

    start_s: float = 0.0
    cannot_start: str = ""
    lasts_s: float | None = None  # None: until it is stopped
    exit_code: int = 0
    signal: int | None = None
    oom: bool = False
    lost_s: float | None = None  # its shim dies
    stop_s: float | None = 0.0
    stop_code: int | None = None  # exit code after SIGTERM; None: it dies of the signal
    log: bytes = b""


@dataclass(slots=True)
class Link:
    """What happens to calls to one machine at present."""

    cut: bool = False  # neither requests nor answers arrive
    deaf: bool = False  # requests arrive, answers get lost
    slow_s: float = 0.0  # requests take this long
    late_s: float = 0.0  # commands arrive this long after the caller has given up
    doubled: bool = False  # commands arrive twice


@dataclass(slots=True)
class _Actor:
    """One worker."""

    worker: Worker
    script: Script
    launched_s: float
    grace_s: float
    asked_s: float | None = None
    kill_s: float | None = None
    over: tuple[float, dict[str, Any]] | None = None
    lost: bool = False

    @property
    def up_s(self) -> float:
        return self.launched_s + self.script.start_s

    def step(self, now_s: float) -> None:
        """Let everything happen that is due."""
        if self.over is None and not self.lost:
            due = min(self._ends(), key=lambda end: end[0], default=None)
            if due is not None and due[0] <= now_s:
                self.lost, self.over = due[1] is None, (due[0], due[1] or {})

    def ask(self, now_s: float, *, kill: bool) -> None:
        if kill:
            self.kill_s = now_s if self.kill_s is None else min(now_s, self.kill_s)
        elif self.asked_s is None:
            self.asked_s = now_s
            self.kill_s = now_s + self.grace_s if self.kill_s is None else self.kill_s

    def lose(self, now_s: float) -> None:
        """Its machine went down."""
        self.step(now_s)
        if self.over is None:
            self.lost, self.over = True, (now_s, {})

    def _ends(self) -> Iterator[tuple[float, dict[str, Any] | None]]:
        """Every way it may end: when, and with which exit record. No record: it is lost."""
        script, up_s = self.script, self.up_s
        if script.cannot_start:
            failed = {"step": "exec", "errno": None, "program": self.worker.argv[0], "said": script.cannot_start}
            yield up_s, _record(up_s, failed=failed)
        else:
            if script.lasts_s is not None:
                at_s = up_s + script.lasts_s
                code = None if script.signal else script.exit_code
                yield at_s, _record(at_s, code=code, signal=script.signal, oom=script.oom, last=_last(script.log))
            if script.lost_s is not None:
                yield up_s + script.lost_s, None
        if self.asked_s is not None and script.stop_s is not None:
            at_s = max(self.asked_s, up_s) + script.stop_s
            gone_by = 15 if script.stop_code is None else None
            yield at_s, _record(at_s, code=script.stop_code, signal=gone_by, asked="term")
        if self.kill_s is not None:
            yield self.kill_s, _record(self.kill_s, signal=9, asked="kill")

    def seen(self, now_s: float) -> Seen:
        up_s = self.up_s if now_s >= self.up_s and not self.script.cannot_start else None
        rank = self.worker.rank
        if self.over is not None:
            up_s = None if self.over[0] < self.up_s else up_s
            stage = Stage.LOST if self.lost else Stage.ENDED
            return Seen(rank=rank, stage=stage, up_s=up_s, exit=None if self.lost else self.over[1])
        return Seen(rank=rank, stage=Stage.STARTING if up_s is None else Stage.UP, up_s=up_s)


def _record(at_s: float, **said: Any) -> dict[str, Any]:
    nothing: dict[str, Any] = {"code": None, "signal": None, "oom": False, "asked": "", "failed": {}, "last": ""}
    return {**nothing, **said, "at_s": at_s}


def _last(log: bytes) -> str:
    lines = log.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


@dataclass(slots=True)
class Machine:
    """One machine. Its runs end by themselves when the lease expires; it obeys only the newest daemon."""

    name: str
    link: Link = field(default_factory=Link)
    up: bool = True
    boots: int = 1
    epoch: int = 0
    lease_until_s: float = inf
    actors: dict[RunId, dict[int, _Actor]] = field(default_factory=dict)
    fenced: dict[RunId, float] = field(default_factory=dict)  # asked to stop: nothing of it may start any more

    @property
    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boots}"

    def obeys(self, epoch: int) -> bool:
        self.epoch = max(self.epoch, epoch)
        return epoch >= self.epoch

    def step(self, now_s: float) -> None:
        for actors in self.actors.values():
            for actor in actors.values():
                if now_s >= self.lease_until_s and actor.over is None:
                    actor.ask(self.lease_until_s, kill=False)
                actor.step(now_s)

    def down(self, now_s: float) -> None:
        self.step(now_s)
        self.up = False
        for actors in self.actors.values():
            for actor in actors.values():
                actor.lose(now_s)

    def boot(self) -> None:
        self.up = True
        self.boots += 1

    def running(self) -> tuple[RunId, ...]:
        return tuple(sorted(run for run, actors in self.actors.items() if any(a.over is None for a in actors.values())))

    def seen(self, run: RunId, ranks: Sequence[int], now_s: float) -> Sight:
        actors, fenced_s = self.actors.get(run, {}), self.fenced.get(run)
        return Sight(workers=tuple(_seen(actors, rank, fenced_s, now_s) for rank in ranks), stop_s=fenced_s)

    def start(self, launch: Launch, behave: Behaviour, now_s: float, valid_until_s: float) -> Answer:
        """Start all workers of the run here, unless they were started. A request that arrives too late starts none."""
        if now_s > valid_until_s:
            return Unknown(why="the request arrived after its lease was over")
        if launch.run not in self.fenced and launch.run not in self.actors:
            self.actors[launch.run] = {
                worker.rank: _Actor(
                    worker=worker, script=behave(launch, worker), launched_s=now_s, grace_s=launch.grace_s
                )
                for worker in launch.workers
                if worker.node == self.name
            }
        return Done()

    def stop(self, run: RunId, now_s: float, *, kill: bool) -> None:
        self.fenced.setdefault(run, now_s)
        for actor in self.actors.get(run, {}).values():
            actor.step(now_s)
            if actor.over is None:
                actor.ask(now_s, kill=kill)


def _seen(actors: Mapping[int, _Actor], rank: int, fenced_s: float | None, now_s: float) -> Seen:
    if rank in actors:
        return actors[rank].seen(now_s)
    if fenced_s is None:
        return Seen(rank=rank, stage=Stage.ABSENT)
    return Seen(rank=rank, stage=Stage.ENDED, exit=_record(fenced_s, failed={"step": "stopped"}))


Behaviour = Callable[[Launch, Worker], Script]


@dataclass(slots=True)
class Theatre:
    """The world: all machines, with all runs that any executor ever launched there. `nodes` are reported when an
    executor begins to observe; a machine with another name is made when a run is launched on it."""

    nodes: tuple[Node, ...] = ()
    watched: bool = False  # machines are watched for contact, and have leases
    machines: dict[str, Machine] = field(default_factory=dict)
    rosters: dict[RunId, Roster] = field(default_factory=dict)
    starts: dict[RunId, int] = field(default_factory=dict)  # never above one per run
    discovery: dict[RunId, str] = field(default_factory=dict)

    def machine(self, name: str) -> Machine:
        return self.machines.setdefault(name, Machine(name=name))

    @property
    def plays(self) -> Mapping[RunId, Roster]:
        """Runs that have files."""
        return self.rosters

    def step(self, now_s: float) -> None:
        for machine in self.machines.values():
            machine.step(now_s)

    def forget(self, job: JobId) -> None:
        for run in [run for run in self.rosters if run.job == job]:
            del self.rosters[run]
            for machine in self.machines.values():
                machine.actors.pop(run, None)
