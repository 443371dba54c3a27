"""An executor for tests, without machines: runs follow scripts on a given clock, with faults on demand.

The world (`scripted_world.Theatre`) outlives executors, so adoption can be tested too. Nothing happens by itself: the
test calls `tick` after it moves the clock, or sets `poll_s` so that the executor polls. The same calls at the same
times give the same observations. The `Link` of a machine determines what happens to calls to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from swell.core.contact import lease_until_s
from swell.core.ids import JobId, RunId
from swell.core.observations import Adopted, FilesFound, NodeHeard, NodeSeen, Observation, RunGone, RunUp
from swell.core.resources import Node
from swell.executors.router import worst
from swell.executors.scripted_world import Behaviour, Machine, Script, Theatre
from swell.executors.verdict import (
    OVER,
    Roster,
    Sight,
    breaks_gang,
    ends_of,
    roster_of,
    together,
    verdict,
)
from swell.ports import Answer, Clock, Done, Launch, LogChunk, Order, Random, Refused, Unknown

__all__ = ["Faults", "Script", "ScriptedExecutor", "Theatre"]

STRAGGLER_S = 5.0
ANSWER_S = 5.0
"""Time-out of a call without an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Faults in the delivery of observations. Deterministic with a seeded `rng`."""

    duplicate: float = 0.0  # chance that an observation is reported twice
    reorder: float = 0.0  # chance that it is reported after the next one
    drop_launches: int = 0  # number of launches that are forgotten, as if the nursery had died with them


@dataclass(slots=True)
class _Watched:
    """A run that has not ended, as far as this executor knows."""

    roster: Roster
    untouched: bool = True  # report it even if not all its workers were started
    up_told: bool = False
    sights: dict[str, Sight] = field(default_factory=dict)  # the latest one of each machine
    broken_s: float | None = None


class ScriptedExecutor:
    """See `ports.Executor`. `behave` returns the script of each worker of a launch."""

    def __init__(
        self,
        theatre: Theatre,
        clock: Clock,
        behave: Behaviour,
        prepare: Callable[[Order], Launch],
        *,
        faults: Faults | None = None,
        rng: Random | None = None,
        epoch: int = 1,
        poll_s: float | None = None,
    ) -> None:
        self._theatre = theatre
        self._clock = clock
        self._behave = behave
        self._prepare = prepare
        self._faults = faults or Faults()
        self._rng = rng
        self._epoch = epoch
        self._poll_s = poll_s
        self._drops = self._faults.drop_launches
        self._watched: dict[RunId, _Watched] = {}
        self._until_s: dict[str, float] = {}  # end of the lease that the last look at a machine renewed
        self._late: list[Observation] = []
        self._told: asyncio.Queue[Observation] = asyncio.Queue()

    # ---- the port ----

    async def launch(self, order: Order) -> Answer:
        if self._drops > 0:
            self._drops -= 1
            return Unknown(why="the launch got lost")
        try:
            launch = self._prepare(order)
        except OSError as error:
            roster = self._theatre.rosters.get(order.run)
            begun = roster is not None and not self._truth(roster).untouched
            return Done() if begun else Refused(why=str(error), errno=error.errno)
        roster = self._theatre.rosters.setdefault(launch.run, roster_of(launch))
        self._watched.setdefault(launch.run, _Watched(roster=roster)).untouched = True
        until_s = dict(self._until_s)
        answers = [
            self._carried(machine, lambda at: self._start(at, launch, order.nodes.get(at.name), until_s.get(at.name)))
            for machine in self._machines_of(roster)
        ]
        answer = worst(await asyncio.gather(*answers))
        if isinstance(answer, Refused):
            answer = await self._withdrawn(launch, answer)
        self._after_a_command()
        return answer

    def _machines_of(self, roster: Roster) -> list[Machine]:
        return [self._theatre.machine(name) for name in dict.fromkeys(member.node for member in roster.members)]

    def _start(self, machine: Machine, launch: Launch, node: Node | None, until_s: float | None) -> Answer:
        """Start the workers here, unless the machine was rebooted since its run was planned, or the lease of the last
        look has expired."""
        if node is not None and node.boot_id and node.boot_id != machine.boot_id:
            return Unknown(why=f"{machine.name} was booted again")
        if node is not None and node.lease_s and until_s is None:
            return Unknown(why=f"{machine.name} has not been looked at yet")
        began = launch.run in machine.actors
        answer = machine.start(launch, self._behave, self._clock.monotonic_s(), inf if until_s is None else until_s)
        if not began and launch.run in machine.actors and launch.workers[0].node == machine.name:
            self._theatre.starts[launch.run] = self._theatre.starts.get(launch.run, 0) + 1
        return answer

    async def _withdrawn(self, launch: Launch, refused: Refused) -> Answer:
        """One machine refused its part: the launch is refused once no other machine has workers of it."""
        if launch.run in self._watched and any(launch.run in m.actors for m in self._theatre.machines.values()):
            return Done()
        self._watched.pop(launch.run, None)
        return refused

    async def resize(self, order: Order) -> Answer:
        first = self._theatre.machine(order.record.run.allocation.nodes[0] if order.record.run else "")
        discovery = self._prepare(order).discovery
        return await self._carried(first, lambda _: self._resized(order.run, discovery))

    def _resized(self, run: RunId, discovery: str) -> Answer:
        self._theatre.discovery[run] = discovery
        return Done()

    async def signal(self, run: RunId, *, kill: bool) -> Answer:
        roster = self._theatre.rosters.get(run)
        if roster is None or self._truth(roster).over:
            return Done()
        self._watched.setdefault(run, _Watched(roster=roster))
        answers = [
            self._carried(machine, lambda at: self._stop(at, run, kill)) for machine in self._machines_of(roster)
        ]
        answer = worst(await asyncio.gather(*answers))
        self._after_a_command()
        return answer

    def _stop(self, machine: Machine, run: RunId, kill: bool) -> Answer:
        machine.stop(run, self._clock.monotonic_s(), kill=kill)
        return Done()

    async def observe(self, known: Sequence[RunId]) -> AsyncIterator[Observation]:
        for run in known:
            if (roster := self._theatre.rosters.get(run)) is not None:
                self._watched.setdefault(run, _Watched(roster=roster, untouched=False)).up_told = False
        kept = {run.job for run in self._theatre.rosters}
        self._told.put_nowait(FilesFound(jobs=tuple(sorted(kept))))
        for node in self._theatre.nodes:
            self._told.put_nowait(NodeSeen(node=node, at_s=self._clock.now_s()))
        self.tick()
        if known:
            self._told.put_nowait(Adopted())
        names = [node.name for node in self._theatre.nodes] if self._poll_s is not None else []
        watches = [asyncio.create_task(self._watch(self._theatre.machine(name))) for name in names]
        try:
            while True:
                yield await self._told.get()
        finally:
            for task in watches:
                task.cancel()
            await asyncio.gather(*watches, return_exceptions=True)

    async def log(self, run: RunId, rank: int, offset: int, limit: int) -> LogChunk:
        roster = self._theatre.rosters.get(run)
        node = next((member.node for member in roster.members if member.rank == rank), "") if roster else ""
        machine = self._theatre.machine(node)
        if machine.link.cut or not machine.up:
            raise OSError(f"{node} does not answer")
        actor = machine.actors.get(run, {}).get(rank)
        seen = actor.seen(self._clock.monotonic_s()) if actor else None
        written = actor.script.log if actor and seen and seen.up_s is not None else b""
        data = written[offset : offset + limit]
        over = seen is not None and seen.stage in OVER
        after = offset + len(data)
        return LogChunk(data=data, offset=offset, next_offset=after, end=over and after >= len(written))

    async def log_since(self, run: RunId, rank: int, age_s: float) -> int:
        return 0  # scripts print all at once

    async def remove(self, job: JobId) -> Answer:
        if any(run.job == job for run in self._watched):
            return Done()
        names = {m.node for run, roster in self._theatre.rosters.items() if run.job == job for m in roster.members}
        answers = [self._carried(self._theatre.machine(name), lambda _: Done()) for name in sorted(names)]
        answer = worst(await asyncio.gather(*answers))
        if isinstance(answer, Done):
            self._theatre.forget(job)
        return answer

    # ---- delivery of commands ----

    async def _carried(self, machine: Machine, act: Callable[[Machine], Answer]) -> Answer:
        """One command to one machine, through its link. It always ends within the time-out."""
        link = machine.link
        if link.cut or not machine.up:
            if link.late_s:
                self._arrive_late(machine, act, link.late_s)
            await asyncio.sleep(ANSWER_S)
            return Unknown(why=f"{machine.name} does not answer")
        if link.slow_s:
            if link.slow_s >= ANSWER_S:
                self._arrive_late(machine, act, link.slow_s)
                await asyncio.sleep(ANSWER_S)
                return Unknown(why=f"{machine.name} has not answered in time")
            await asyncio.sleep(link.slow_s)
        answer = self._arrived(machine, act)
        if link.doubled:
            answer = self._arrived(machine, act)
        if link.deaf:
            await asyncio.sleep(ANSWER_S)
            return Unknown(why=f"the answer of {machine.name} got lost")
        return answer

    def _arrive_late(self, machine: Machine, act: Callable[[Machine], Answer], after_s: float) -> None:
        """The command arrives later, even if the daemon that sent it has ended meanwhile."""
        asyncio.get_running_loop().call_later(after_s, self._arrived, machine, act)

    def _arrived(self, machine: Machine, act: Callable[[Machine], Answer]) -> Answer:
        if not machine.up:
            return Unknown(why=f"{machine.name} is down")
        if not machine.obeys(self._epoch):
            return Refused(why=f"{machine.name} obeys a newer daemon")
        machine.step(self._clock.monotonic_s())
        return act(machine)

    def _after_a_command(self) -> None:
        if self._poll_s is None:
            self.tick()

    # ---- watching ----

    async def _watch(self, machine: Machine) -> None:
        assert self._poll_s is not None
        while True:
            link = machine.link
            if machine.up and not (link.cut or link.deaf):
                await asyncio.sleep(link.slow_s)
                if machine.up and not link.cut and machine.obeys(self._epoch):
                    self._look(machine)
            await asyncio.sleep(self._poll_s)

    def _look(self, machine: Machine) -> None:
        """A look: what runs there, what became of it; answered with a renewal of the machine's leases."""
        now_s = self._clock.monotonic_s()
        machine.step(now_s)
        if self._theatre.watched:
            lease_s = next((node.lease_s for node in self._theatre.nodes if node.name == machine.name), 0.0)
            machine.lease_until_s = self._until_s[machine.name] = lease_until_s(now_s, lease_s) if lease_s else inf
            at_s, running = self._clock.now_s(), machine.running()
            self._tell(NodeHeard(node=machine.name, boot_id=machine.boot_id, running=running, at_s=at_s))
        for run in list(self._watched):
            self._see(machine, run, now_s)

    def tick(self) -> None:
        """The clock may have moved: let everything due happen, and report it. For executors without `poll_s`."""
        if self._poll_s is not None:
            return
        now_s = self._clock.monotonic_s()
        self._theatre.step(now_s)
        for run in list(self._watched):
            for machine in list(self._theatre.machines.values()):
                self._see(machine, run, now_s)

    def _see(self, machine: Machine, run: RunId, now_s: float) -> None:
        watched = self._watched.get(run)
        ranks = [m.rank for m in watched.roster.members if m.node == machine.name] if watched else []
        if watched is None or not ranks:
            return
        watched.sights[machine.name] = machine.seen(run, ranks, now_s)
        if len(watched.sights) == len({member.node for member in watched.roster.members}):
            self._judge(watched, together(list(watched.sights.values())), now_s)

    def _judge(self, watched: _Watched, sight: Sight, now_s: float) -> None:
        run, behind_s = watched.roster.run, self._clock.now_s() - now_s
        if sight.untouched and not watched.untouched:
            del self._watched[run]  # adopted, but not all workers were started: the daemon launches it
            return
        if sight.up_s is not None and not watched.up_told:
            watched.up_told = True
            self._tell(RunUp(run=run, at_s=sight.up_s + behind_s))
        gone = verdict(watched.roster, sight, now_s)
        if gone is None:
            self._keep_whole(watched, sight, now_s)
            return
        del self._watched[run]
        self._tell(replace(gone, at_s=self._over_s(watched.roster, gone, now_s) + behind_s))

    def _over_s(self, roster: Roster, gone: RunGone, now_s: float) -> float:
        """When the run ended. A lost worker has no exit record, but the world knows its time."""
        actors = [a for m in self._theatre.machines.values() for a in m.actors.get(roster.run, {}).values()]
        return max((actor.over[0] for actor in actors if actor.over), default=gone.at_s)

    def _keep_whole(self, watched: _Watched, sight: Sight, now_s: float) -> None:
        """Stop the gang after one worker has failed; its workers that have not started never will."""
        breaker = breaks_gang(watched.roster, ends_of(watched.roster, sight, now_s))
        if breaker is None:
            return
        watched.broken_s = breaker.at_s if watched.broken_s is None else watched.broken_s
        if now_s >= watched.broken_s + STRAGGLER_S:
            for machine in self._machines_of(watched.roster):
                if machine.up and not machine.link.cut:
                    machine.stop(watched.roster.run, now_s, kill=False)
                    machine.step(now_s)

    def _truth(self, roster: Roster) -> Sight:
        now_s = self._clock.monotonic_s()
        by_node: dict[str, list[int]] = {}
        for member in roster.members:
            by_node.setdefault(member.node, []).append(member.rank)
        return together([self._theatre.machine(name).seen(roster.run, ranks, now_s) for name, ranks in by_node.items()])

    def _tell(self, observation: Observation) -> None:
        if self._rng is not None and self._rng.random() < self._faults.reorder:
            self._late.append(observation)
            return
        waiting, self._late = self._late, []
        twice = self._rng is not None and self._rng.random() < self._faults.duplicate
        for item in (observation, *((observation,) if twice else ()), *waiting):
            self._told.put_nowait(item)

    def flush(self) -> None:
        """Report what a fault has held back."""
        waiting, self._late = self._late, []
        for item in waiting:
            self._told.put_nowait(item)
