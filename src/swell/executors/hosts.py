"""Machines held through shims: the executor of this machine (and, by other transports, of machines like it).

Every run has a directory on each of its nodes; the directories are the truth and this object only reads them, so that
any later one can take over. Hints of shims make it quick (milliseconds), polling makes it sure.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from swell.core.events import ExitReason
from swell.core.ids import JobId, RunId
from swell.core.resources import Allocation, Node
from swell.executors.inventory import Machine, Ours
from swell.executors.transport import LocalTransport, Transport
from swell.executors.verdict import (
    OVER,
    Roster,
    Seen,
    Sight,
    Stage,
    breaks_gang,
    ends_of,
    roster_from_json,
    roster_of,
    sight_from_json,
    verdict,
)
from swell.ports import Clock, Launch, LogChunk, NodeSeen, Observation, RunGone, RunUp, Worker

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Times in seconds."""

    poll_s: float = 1.5  # locks and records are read this often, hints or not
    inventory_s: float = 3.0
    clean_s: float = 2.0  # a GPU's memory has so long to be free before the end of its run is told
    ask_again_s: float = 5.0  # a worker without a claim is asked for again
    ask_times: int = 4
    straggler_s: float = 5.0  # from the first failure in a gang to SIGTERM for the others
    force_s: float = 5.0  # a shim that was asked to kill its worker has so long; then it is done past it


@dataclass(slots=True)
class _Tracked:
    """A run that is not over, as far as we know."""

    roster: Roster
    requests: Mapping[int, dict[str, Any]] = field(default_factory=dict)  # empty for adopted runs: all were claimed
    sight: Sight | None = None
    up_told: bool = False
    failed: str = ""  # why it could not be started; never the job's fault: that is in a worker's exit record
    asked_s: float = 0.0  # monotonic
    asked: int = 0
    broken_s: float | None = None  # monotonic, when its gang broke
    told_rest: bool = False
    kill_s: float | None = None  # monotonic, when its shims were last asked, or forced, to kill everything
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def could_not(self, be_done: str, error: OSError) -> None:
        self.failed = f"the run could not be {be_done}: {error}; see `swell doctor`"


class HostExecutor:
    """See `ports.Executor`. `remote` are transports by node name; every other node is this machine."""

    def __init__(
        self,
        local: LocalTransport,
        clock: Clock,
        *,
        machine: Machine | None = None,
        remote: Mapping[str, Transport] | None = None,
        tuning: Tuning | None = None,
    ) -> None:
        self._local = local
        self._clock = clock
        self._machine = machine
        self._remote = dict(remote or {})
        self._tuning = tuning or Tuning()
        self._tracked: dict[RunId, _Tracked] = {}
        self._told: asyncio.Queue[Observation] = asyncio.Queue()
        self._dirty: dict[RunId, None] = {}
        self._wake = asyncio.Event()
        self._node: Node | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}

    # ---- the port ----

    async def launch(self, launch: Launch) -> None:
        if launch.run in self._tracked:
            return
        roster = roster_of(launch)
        requests = {worker.rank: _request(launch, worker) for worker in launch.workers}
        tracked = self._tracked[launch.run] = _Tracked(roster=roster, requests=requests)
        async with tracked.lock:
            try:
                await self._local.put(launch.run, "launch.json", json.dumps(roster.to_json()).encode())
                if launch.discovery:
                    await self._local.put(launch.run, "discovery", launch.discovery.encode())
                await self._start_absent(tracked)
            except OSError as error:
                tracked.could_not("prepared", error)
        self._hint(launch.run)

    async def resize(self, launch: Launch, allocation: Allocation) -> None:
        await self._local.put(launch.run, "discovery", launch.discovery.encode())

    async def signal(self, run: RunId, *, kill: bool) -> None:
        tracked = self._tracked.get(run) or await self._take_over(run)
        if tracked is None:
            return
        async with tracked.lock:
            for transport, ranks in self._by_transport(tracked.roster):
                await transport.stop(run, ranks, kill=kill, whole=True)
            if kill:
                tracked.kill_s = self._clock.monotonic_s()
        self._hint(run)

    async def observe(self, known: Sequence[RunId]) -> AsyncIterator[Observation]:
        self._local.listen(self._hint)
        try:
            for run in known:
                if run not in self._tracked:
                    await self._take_over(run, untouched=False)
            await self._safely(self._inspect(list(self._tracked)))
            watch = asyncio.create_task(self._watch())
            try:
                while True:
                    yield await self._told.get()
            finally:
                await _cancel([watch, *self._tasks])
        finally:
            self._local.close()

    async def log(self, run: RunId, rank: int, offset: int, limit: int) -> LogChunk:
        roster = await self._roster(run)
        nodes = {member.rank: member.node for member in roster.members} if roster else {}
        return await self._transport(nodes.get(rank, "")).read_log(run, rank, offset, limit)

    async def remove(self, job: JobId) -> None:
        if any(run.job == job for run in self._tracked):
            return
        for transport in (self._local, *self._remote.values()):
            await transport.remove(job)

    async def kept(self) -> Sequence[JobId]:
        return sorted({job for transport in (self._local, *self._remote.values()) for job in await transport.kept()})

    # ---- runs ----

    def _transport(self, node: str) -> Transport:
        return self._remote.get(node, self._local)

    def _by_transport(self, roster: Roster) -> list[tuple[Transport, list[int]]]:
        groups: dict[int, tuple[Transport, list[int]]] = {}
        for member in roster.members:
            transport = self._transport(member.node)
            groups.setdefault(id(transport), (transport, []))[1].append(member.rank)
        return list(groups.values())

    async def _roster(self, run: RunId) -> Roster | None:
        tracked = self._tracked.get(run)
        if tracked is not None:
            return tracked.roster
        data = await self._local.get(run, "launch.json")
        try:
            return roster_from_json(json.loads(data)) if data else None
        except (ValueError, KeyError):
            return None  # cut short by a power cut: it is launched again, and its claims tell

    async def _take_over(self, run: RunId, *, untouched: bool = True) -> _Tracked | None:
        """Track a run that another process launched. `untouched`: also one that is not wholly started."""
        roster = await self._roster(run)
        if roster is None:
            return None
        sight = (await self._look([roster]))[run]
        if sight.untouched and not untouched:
            return None
        if untouched and sight.over:
            return None
        tracked = self._tracked[run] = _Tracked(roster=roster, asked_s=self._clock.monotonic_s())
        return tracked

    async def _look(self, rosters: Iterable[Roster]) -> dict[RunId, Sight]:
        wanted: dict[int, tuple[Transport, dict[RunId, list[int]]]] = {}
        looks: dict[RunId, list[Mapping[str, Any]]] = {}
        for roster in rosters:
            for transport, ranks in self._by_transport(roster):
                wanted.setdefault(id(transport), (transport, {}))[1][roster.run] = ranks
        for transport, runs in wanted.values():
            for run, look in (await transport.look(runs)).items():
                looks.setdefault(run, []).append(look)
        now_s = self._clock.now_s()
        return {run: sight_from_json(found, now_s) for run, found in looks.items()}

    async def _start_absent(self, tracked: _Tracked) -> None:
        """Ask for a shim for each worker that has none. A run that has begun to end is not completed."""
        sight = (await self._look([tracked.roster]))[tracked.roster.run]
        if sight.stop_s is not None or any(seen.exit or seen.stage in OVER for seen in sight.workers):
            return
        absent = {seen.rank for seen in sight.workers if seen.stage is Stage.ABSENT}
        tracked.asked_s = self._clock.monotonic_s()
        tracked.asked += 1
        for transport, ranks in self._by_transport(tracked.roster):
            requests = [tracked.requests[rank] for rank in ranks if rank in absent]
            if requests:
                await transport.start(tracked.roster.run, requests)

    # ---- watching ----

    def _hint(self, run: RunId) -> None:
        if run in self._tracked:
            self._dirty[run] = None
            self._wake.set()

    async def _watch(self) -> None:
        poll_s = inventory_s = self._clock.monotonic_s()
        while True:
            now_s = self._clock.monotonic_s()
            if now_s >= inventory_s:
                await self._safely(self._take_inventory())
                inventory_s = now_s + self._tuning.inventory_s
            if now_s >= poll_s:
                self._dirty.update(dict.fromkeys(self._tracked))
                poll_s = now_s + self._tuning.poll_s
            runs, self._dirty = list(self._dirty), {}
            await self._safely(self._inspect(runs))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(0.0, poll_s - self._clock.monotonic_s()))
            self._wake.clear()

    async def _safely(self, work: Awaitable[None]) -> None:
        """Whatever goes wrong with one look (no file descriptors left, a driver that hangs up), the next one comes."""
        try:
            await work
        except Exception:
            log.exception("looking at runs failed; looking again in %s s", self._tuning.poll_s)

    async def _inspect(self, runs: Sequence[RunId]) -> None:
        found = [tracked for run in runs if (tracked := self._tracked.get(run)) and not tracked.lock.locked()]
        for run, sight in (await self._look(tracked.roster for tracked in found)).items():
            await self._judge(self._tracked[run], sight)

    async def _judge(self, tracked: _Tracked, sight: Sight) -> None:
        run, now_s = tracked.roster.run, self._clock.now_s()
        tracked.sight = sight
        if sight.up_s is not None and not tracked.up_told:
            tracked.up_told = True
            self._told.put_nowait(RunUp(run=run, at_s=sight.up_s))
        gone = verdict(tracked.roster, sight, now_s)
        if gone is None:
            gone = await self._tend(tracked, sight)
        elif tracked.failed:
            gone = replace(gone, reason=ExitReason.NODE_FULL, message=tracked.failed)
        if gone is not None:
            del self._tracked[run]
            await self._tell_gone(tracked.roster, gone)

    async def _tell_gone(self, roster: Roster, gone: RunGone) -> None:
        """A GPU that is not clean is told before it is free to be given away. Others' news does not wait for it."""
        gpus = self._gpus_of(roster)
        if self._machine is None or await self._clean(gpus):
            self._told.put_nowait(gone)
            return
        task = asyncio.create_task(self._tell_when_clean(gpus, gone))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _tell_when_clean(self, gpus: Sequence[int], gone: RunGone) -> None:
        give_up_s = self._clock.monotonic_s() + self._tuning.clean_s
        while self._clock.monotonic_s() < give_up_s and not await self._clean(gpus):
            await asyncio.sleep(0.1)
        await self._take_inventory()
        self._told.put_nowait(gone)

    async def _clean(self, gpus: Sequence[int]) -> bool:
        machine = self._machine
        if machine is None or not gpus:
            return True
        ours = self._ours()
        return await asyncio.to_thread(lambda: all(machine.gpu_clean(gpu, ours) for gpu in gpus))

    def _gpus_of(self, roster: Roster) -> list[int]:
        """On this machine."""
        name = self._machine.name if self._machine else ""
        return sorted({gpu for member in roster.members if member.node == name for gpu in member.gpus})

    async def _tend(self, tracked: _Tracked, sight: Sight) -> RunGone | None:
        """Keep the gang whole: start who is missing, or stop the rest when one has ended badly."""
        run, now_s = tracked.roster.run, self._clock.monotonic_s()
        if tracked.kill_s is not None and now_s >= tracked.kill_s + self._tuning.force_s:
            await self._force(tracked, now_s)
        absent = [seen for seen in sight.workers if seen.stage is Stage.ABSENT]
        ends = ends_of(tracked.roster, sight, self._clock.now_s())
        breaker = breaks_gang(tracked.roster, ends)
        if absent and not (tracked.failed or breaker or sight.stop_s is not None):
            await self._ask_again(tracked, now_s)
        if absent and (tracked.failed or breaker or sight.stop_s is not None):
            fenced = await self._stop(tracked, absent, kill=True)
            if not fenced and len(absent) == len(sight.workers):
                return RunGone(run=run, reason=ExitReason.NODE_FULL, at_s=self._clock.now_s(), message=tracked.failed)
        if breaker or tracked.failed:
            tracked.broken_s = now_s if tracked.broken_s is None else tracked.broken_s
            at_once = bool(tracked.failed) or (breaker is not None and breaker.reason is ExitReason.START_FAILED)
            patience_s = self._patience_s(tracked, breaker.reason if breaker else ExitReason.START_FAILED)
            if not tracked.told_rest and now_s >= tracked.broken_s + patience_s:
                rest = [seen for seen in sight.workers if seen.stage in (Stage.STARTING, Stage.UP)]
                tracked.told_rest = await self._stop(tracked, rest, kill=at_once)
                tracked.kill_s = now_s if at_once and tracked.kill_s is None else tracked.kill_s
        return None

    async def _force(self, tracked: _Tracked, now_s: float) -> None:
        """Its shims have not killed their workers, though they were asked: somebody has stopped or blocked them."""
        tracked.kill_s = now_s
        log.warning("run %s was to be killed and is not over; killing all that belongs to it", tracked.roster.run)
        for transport, ranks in self._by_transport(tracked.roster):
            await transport.force(tracked.roster.run, ranks)
        self._hint(tracked.roster.run)

    def _patience_s(self, tracked: _Tracked, reason: ExitReason) -> float:
        """How long the others may take to end by themselves."""
        if reason in (ExitReason.START_FAILED, ExitReason.FINISHED):  # nothing to wait for; only servers are left
            return 0.0
        return tracked.roster.grace_s if reason is ExitReason.STOPPED else self._tuning.straggler_s

    async def _ask_again(self, tracked: _Tracked, now_s: float) -> None:
        """The nursery may have died with our request. Asking twice is harmless: there is one claim."""
        if not tracked.requests or now_s < tracked.asked_s + self._tuning.ask_again_s:
            return
        if tracked.asked >= self._tuning.ask_times:
            tracked.failed = "the process that holds a job did not start; the machine may be out of memory or processes"
            return
        try:
            await self._start_absent(tracked)
        except OSError as error:
            tracked.could_not("started", error)

    async def _stop(self, tracked: _Tracked, workers: Sequence[Seen], *, kill: bool) -> bool:
        ranks = {seen.rank for seen in workers}
        try:
            for transport, here in self._by_transport(tracked.roster):
                chosen = [rank for rank in here if rank in ranks]
                await transport.stop(tracked.roster.run, chosen, kill=kill, whole=False)
        except OSError:
            return False
        self._hint(tracked.roster.run)
        return True

    async def _take_inventory(self) -> None:
        if self._machine is None:
            return
        node = await asyncio.to_thread(self._machine.read, self._ours())
        if node != self._node:
            self._node = node
            self._told.put_nowait(NodeSeen(node=node, at_s=self._clock.now_s()))

    def _ours(self) -> Ours:
        seen = [worker for tracked in self._tracked.values() if tracked.sight for worker in tracked.sight.workers]
        live = [worker for worker in seen if worker.stage not in OVER]
        held = [gpu for tracked in self._tracked.values() for gpu in self._gpus_of(tracked.roster)]
        return Ours(
            marks=frozenset(worker.mark for worker in live if worker.mark),
            shims=frozenset(worker.pid for worker in live if worker.pid),
            gpus=frozenset(held),
        )


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _request(launch: Launch, worker: Worker) -> dict[str, Any]:
    return {
        "run": str(launch.run),
        "rank": worker.rank,
        "argv": list(worker.argv),
        "env": dict(worker.env),
        "cwd": worker.cwd,
        "grace_s": launch.grace_s,
        "secrets": list(launch.secrets),
    }


def local_executor(
    runs_dir: Path,
    clock: Clock,
    *,
    job_dirs: Sequence[Path] = (),
    machine: Machine | None = None,
    tuning: Tuning | None = None,
) -> HostExecutor:
    """Everything on this machine. `job_dirs` each hold a directory a job, which goes when the job is removed."""
    return HostExecutor(LocalTransport(runs_dir, job_dirs), clock, machine=machine, tuning=tuning)
