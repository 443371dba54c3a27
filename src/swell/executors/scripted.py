"""An executor without a machine: runs play out scripts on a clock that is handed in, with faults on demand.

The world (`Theatre`) outlives executors, as a machine outlives daemons, so adoption can be played too. Nothing happens
by itself: whoever moves the clock calls `tick`. Same calls at the same times give the same observations.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from swell.core.ids import JobId, RunId
from swell.core.resources import Node
from swell.executors.verdict import OVER, Roster, Seen, Sight, Stage, breaks_gang, ends_of, roster_of, verdict
from swell.ports import (
    Adopted,
    Answer,
    Clock,
    Done,
    FilesFound,
    Launch,
    LogChunk,
    NodeSeen,
    Observation,
    Order,
    Random,
    RunGone,
    RunUp,
    Unknown,
    Worker,
)

STRAGGLER_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What one worker does. Times in seconds from its launch (`start_s`), from its start (`lasts_s`, `lost_s`), or from
    SIGTERM (`stop_s`; None: it does not listen)."""

    start_s: float = 0.0
    cannot_start: str = ""
    lasts_s: float | None = None  # None: until it is stopped
    exit_code: int = 0
    signal: int | None = None
    oom: bool = False
    lost_s: float | None = None  # its shim dies
    stop_s: float | None = 0.0
    stop_code: int | None = None  # what it leaves with when asked; None: dies of the signal
    log: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How badly observations are carried. Deterministic with a seeded `rng`."""

    duplicate: float = 0.0  # chance that an observation is told twice
    reorder: float = 0.0  # chance that it is told after the next one
    drop_launches: int = 0  # so many launches are forgotten, as if the nursery had died with them


@dataclass(slots=True)
class _Actor:
    """One worker on stage."""

    worker: Worker
    script: Script
    launched_s: float
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

    def _ends(self) -> Iterator[tuple[float, dict[str, Any] | None]]:
        """Every way it may end: when, and with which record. No record: it is lost."""
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
class _Play:
    roster: Roster
    actors: list[_Actor]
    stop_s: float | None = None
    told_rest: bool = False

    def sight(self, now_s: float) -> Sight:
        return Sight(workers=tuple(actor.seen(now_s) for actor in self.actors), stop_s=self.stop_s)

    def ask(self, now_s: float, *, kill: bool) -> None:
        for actor in self.actors:
            if kill:
                actor.kill_s = now_s if actor.kill_s is None else min(now_s, actor.kill_s)
            elif actor.asked_s is None:
                actor.asked_s = now_s
                actor.kill_s = now_s + self.roster.grace_s if actor.kill_s is None else actor.kill_s

    def step(self, now_s: float) -> None:
        for actor in self.actors:
            actor.step(now_s)
        breaker = breaks_gang(self.roster, ends_of(self.roster, self.sight(now_s), now_s))
        if breaker is not None and not self.told_rest and now_s >= breaker.at_s + STRAGGLER_S:
            self.told_rest = True
            self.ask(now_s, kill=False)
            for actor in self.actors:
                actor.step(now_s)


Behaviour = Callable[[Launch, Worker], Script]


@dataclass(slots=True)
class Theatre:
    """The world: all runs ever launched, by any executor. `starts` counts starts; never above one a run."""

    plays: dict[RunId, _Play] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    starts: dict[RunId, int] = field(default_factory=dict)
    discovery: dict[RunId, str] = field(default_factory=dict)


class ScriptedExecutor:
    """See `ports.Executor`. `behave` says what each worker of a launch will do."""

    def __init__(
        self,
        theatre: Theatre,
        clock: Clock,
        behave: Behaviour,
        prepare: Callable[[Order], Launch],
        *,
        faults: Faults | None = None,
        rng: Random | None = None,
    ) -> None:
        self._theatre = theatre
        self._clock = clock
        self._behave = behave
        self._prepare = prepare
        self._faults = faults or Faults()
        self._rng = rng
        self._drops = self._faults.drop_launches
        self._watched: dict[RunId, bool] = {}  # -> RunUp was told
        self._late: list[Observation] = []
        self._told: asyncio.Queue[Observation] = asyncio.Queue()

    async def launch(self, order: Order) -> Answer:
        launch = self._prepare(order)
        if self._drops > 0:
            self._drops -= 1
            return Unknown(why="the launch got lost")
        if launch.run not in self._theatre.plays:
            now_s = self._clock.now_s()
            actors = [_Actor(worker=w, script=self._behave(launch, w), launched_s=now_s) for w in launch.workers]
            self._theatre.plays[launch.run] = _Play(roster=roster_of(launch), actors=actors)
            self._theatre.starts[launch.run] = self._theatre.starts.get(launch.run, 0) + 1
        self._watched.setdefault(launch.run, False)
        self.tick()
        return Done()

    async def resize(self, order: Order) -> Answer:
        self._theatre.discovery[order.run] = self._prepare(order).discovery
        return Done()

    async def signal(self, run: RunId, *, kill: bool) -> Answer:
        play = self._theatre.plays.get(run)
        if play is None or play.sight(self._clock.now_s()).over:
            return Done()
        play.stop_s = self._clock.now_s() if play.stop_s is None else play.stop_s
        play.ask(self._clock.now_s(), kill=kill)
        self._watched.setdefault(run, False)
        self.tick()
        return Done()

    async def observe(self, known: Sequence[RunId]) -> AsyncIterator[Observation]:
        for run in known:
            if run in self._theatre.plays:
                self._watched.setdefault(run, False)
        self.tick()
        self._told.put_nowait(FilesFound(jobs=tuple(sorted({run.job for run in self._theatre.plays}))))
        for node in self._theatre.nodes:
            self._told.put_nowait(NodeSeen(node=node, at_s=self._clock.now_s()))
        if known:
            self._told.put_nowait(Adopted())
        while True:
            yield await self._told.get()

    async def log(self, run: RunId, rank: int, offset: int, limit: int) -> LogChunk:
        play = self._theatre.plays.get(run)
        actor = next((actor for actor in play.actors if actor.worker.rank == rank), None) if play else None
        now_s = self._clock.now_s()
        seen = actor.seen(now_s) if actor else None
        written = actor.script.log if actor and seen and seen.up_s is not None else b""
        data = written[offset : offset + limit]
        over = seen is not None and seen.stage in OVER
        after = offset + len(data)
        return LogChunk(data=data, offset=offset, next_offset=after, end=over and after >= len(written))

    async def remove(self, job: JobId) -> Answer:
        if not any(run.job == job for run in self._watched):
            for run in [run for run in self._theatre.plays if run.job == job]:
                del self._theatre.plays[run]
        return Done()

    def tick(self) -> None:
        """The clock may have moved: let everything happen that is due, and tell it."""
        now_s = self._clock.now_s()
        for run in list(self._watched):
            play = self._theatre.plays[run]
            play.step(now_s)
            sight = play.sight(now_s)
            if sight.up_s is not None and not self._watched[run]:
                self._watched[run] = True
                self._tell(RunUp(run=run, at_s=sight.up_s))
            gone = verdict(play.roster, sight, now_s)
            if gone is not None:
                del self._watched[run]
                self._tell(self._at_its_time(play, gone))

    def _at_its_time(self, play: _Play, gone: RunGone) -> RunGone:
        """A lost worker has no record, but here the time is known."""
        return replace(gone, at_s=max(actor.over[0] for actor in play.actors if actor.over))

    def _tell(self, observation: Observation) -> None:
        if self._rng is not None and self._rng.random() < self._faults.reorder:
            self._late.append(observation)
            return
        waiting, self._late = self._late, []
        twice = self._rng is not None and self._rng.random() < self._faults.duplicate
        for item in (observation, *((observation,) if twice else ()), *waiting):
            self._told.put_nowait(item)

    def flush(self) -> None:
        """Tell what a fault has held back."""
        waiting, self._late = self._late, []
        for item in waiting:
            self._told.put_nowait(item)
