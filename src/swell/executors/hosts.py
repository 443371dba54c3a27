"""Machines held through shims: the executor of this machine (and, by other transports, of machines like it).

Every run has a directory on each of its nodes; the directories are the truth and this object only reads them, so that
any later one can take over. Hints of shims make it quick (milliseconds), polling makes it sure.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from swell.core.events import ExitReason
from swell.core.ids import JobId, RunId
from swell.core.resources import Node
from swell.executors.inventory import Machine, Ours
from swell.executors.tracking import Place, Tracked, Tuning
from swell.executors.transport import LocalTransport, Transport, Unreachable
from swell.executors.verdict import (
    OVER,
    Epochs,
    Roster,
    Seen,
    Sight,
    Stage,
    breaks_gang,
    ends_of,
    roster_from_json,
    roster_of,
    sight_from_json,
    together,
    verdict,
)
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
    Refused,
    RunGone,
    RunProgress,
    RunUp,
    Unknown,
    Worker,
)

log = logging.getLogger(__name__)
_T = TypeVar("_T")


class HostExecutor:
    """See `ports.Executor`. `prepare` makes of an order what its machines need, in a thread. `remote` are transports by
    node name; every other node that it is asked for is this machine (the router has checked what they are)."""

    def __init__(
        self,
        local: LocalTransport,
        clock: Clock,
        prepare: Callable[[Order], Launch],
        *,
        machine: Machine | None = None,
        remote: Mapping[str, Transport] | None = None,
        tuning: Tuning | None = None,
    ) -> None:
        self._local = local
        self._clock = clock
        self._prepare = prepare
        self._machine = machine
        self._here = Place(name="", transport=local)
        self._remote = {name: Place(name=name, transport=transport) for name, transport in (remote or {}).items()}
        self._tuning = tuning or Tuning()
        self._tracked: dict[RunId, Tracked] = {}
        self._told: asyncio.Queue[Observation] = asyncio.Queue()
        self._node: Node | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def declare(self, gpus: int | None) -> Node:
        """This machine with so many slots, or (None) with the GPUs that are found."""
        assert self._machine is not None, "slots are declared on machines that are looked at"
        self._machine.declare(gpus)
        await self._take_inventory()
        assert self._node is not None
        return self._node

    # ---- the port ----

    async def launch(self, order: Order) -> Answer:
        try:
            if await self._has_begun(order.run):
                return Done()
        except OSError as error:  # it may run: whatever is wrong here is no verdict about it
            return Unknown(why=str(error))
        try:
            launch = await asyncio.to_thread(self._prepare, order)
        except Exception as error:
            return _refused(error)
        roster = roster_of(launch)
        tracked = self._tracked.setdefault(launch.run, Tracked(roster=roster))
        async with tracked.lock:
            tracked.requests = {worker.rank: _request(launch, worker) for worker in launch.workers}
            tracked.untouched = True
            answer = await self._begin(tracked, launch)
        self._hint(launch.run)
        return answer

    async def _begin(self, tracked: Tracked, launch: Launch) -> Answer:
        """What a machine refuses is told by an observation once nothing of the run is left anywhere."""
        try:
            await self._reach(self._local.put(launch.run, "launch.json", json.dumps(tracked.roster.to_json()).encode()))
            if launch.discovery:
                await self._reach(self._local.put(launch.run, "discovery", launch.discovery.encode()))
            await self._start_absent(tracked)
        except Unreachable as error:
            return Unknown(why=str(error))
        except OSError as error:
            tracked.could_not("prepared", error)
        return Done()

    async def resize(self, order: Order) -> Answer:
        try:
            launch = await asyncio.to_thread(self._prepare, order)
            await self._reach(self._local.put(launch.run, "discovery", launch.discovery.encode()))
        except Unreachable as error:
            return Unknown(why=str(error))
        except Exception as error:
            return _refused(error)
        return Done()

    async def signal(self, run: RunId, *, kill: bool) -> Answer:
        try:
            tracked = self._tracked.get(run) or await self._take_over(run)
            if tracked is None:
                return Done()
            async with tracked.lock:
                await _all_of(
                    self._reach(place.transport.stop(run, ranks, kill=kill, whole=True))
                    for place, ranks in self._by_place(tracked.roster)
                )
                if kill:
                    tracked.kill_s = self._clock.monotonic_s()
        except Unreachable as error:
            return Unknown(why=str(error))
        except OSError as error:
            return _refused(error)
        finally:
            self._hint(run)
        return Done()

    async def observe(self, known: Sequence[RunId]) -> AsyncIterator[Observation]:
        self._local.listen(self._hint)
        watches: list[asyncio.Task[None]] = []
        try:
            for run in known:
                await self._safely(self._adopt(run))
            await self._safely(self._tell_files())
            await self._safely(self._inspect(self._here, list(self._tracked)))
            if known:
                self._told.put_nowait(Adopted())
            watches = [asyncio.create_task(self._watch(place)) for place in self._places()]
            while True:
                yield await self._told.get()
        finally:
            await _cancel([*watches, *self._tasks])
            self._local.close()

    async def log(self, run: RunId, rank: int, offset: int, limit: int) -> LogChunk:
        roster = await self._roster(run)
        nodes = {member.rank: member.node for member in roster.members} if roster else {}
        return await self._reach(self._place(nodes.get(rank, "")).transport.read_log(run, rank, offset, limit))

    async def remove(self, job: JobId) -> Answer:
        if any(run.job == job for run in self._tracked):
            return Done()
        try:
            await _all_of(self._reach(place.transport.remove(job)) for place in self._places())
        except Unreachable as error:
            return Unknown(why=str(error))
        except OSError as error:
            return _refused(error)
        return Done()

    # ---- machines ----

    def _places(self) -> list[Place]:
        return [self._here, *self._remote.values()]

    def _place(self, node: str) -> Place:
        return self._remote.get(node, self._here)

    def _by_place(self, roster: Roster) -> list[tuple[Place, list[int]]]:
        groups: dict[str, tuple[Place, list[int]]] = {}
        for member in roster.members:
            place = self._place(member.node)
            groups.setdefault(place.name, (place, []))[1].append(member.rank)
        return list(groups.values())

    async def _reach(self, call: Awaitable[_T]) -> _T:
        """Every call to a machine ends within the time-out."""
        try:
            async with asyncio.timeout(self._tuning.answer_s):
                return await call
        except TimeoutError:
            raise Unreachable(f"no answer within {self._tuning.answer_s:g} s") from None

    async def _tell_files(self) -> None:
        self._told.put_nowait(FilesFound(jobs=tuple(await self._reach(self._local.kept()))))

    # ---- runs ----

    async def _roster(self, run: RunId) -> Roster | None:
        tracked = self._tracked.get(run)
        if tracked is not None:
            return tracked.roster
        data = await self._reach(self._local.get(run, "launch.json"))
        try:
            return roster_from_json(json.loads(data)) if data else None
        except (ValueError, KeyError):
            return None  # cut short by a power cut: it is launched again, and its claims tell

    async def _adopt(self, run: RunId) -> None:
        """Track a run that another process launched, unless it was never wholly started: then it is launched again.
        Its machines may be out of reach now; their watches find it when they are back."""
        roster = await self._roster(run)
        if (tracked := self._tracked.get(run)) is not None:
            tracked.up_told = tracked.looked = False
            tracked.epochs_told = tracked.epochs is None
        elif roster is not None:
            now_s = self._clock.monotonic_s()
            self._tracked[run] = Tracked(roster=roster, untouched=False, asked_s=now_s)

    async def _has_begun(self, run: RunId) -> bool:
        """All its workers were started, by whichever process: there is nothing to prepare."""
        roster = await self._roster(run)
        if roster is None or (await self._look(roster)).untouched:
            return False
        self._tracked.setdefault(run, Tracked(roster=roster, asked_s=self._clock.monotonic_s()))
        self._hint(run)
        return True

    async def _take_over(self, run: RunId) -> Tracked | None:
        """Track a run that another process launched and that is not over, in order to stop it."""
        roster = await self._roster(run)
        if roster is None or (await self._look(roster)).over:
            return None
        return self._tracked.setdefault(run, Tracked(roster=roster, asked_s=self._clock.monotonic_s()))

    async def _look(self, roster: Roster) -> Sight:
        """At all places of a run at once."""
        run = roster.run
        looks = await _all_of(
            self._reach(place.transport.look({run: ranks})) for place, ranks in self._by_place(roster)
        )
        return sight_from_json([look[run] for look in looks], self._clock.now_s())

    async def _start_absent(self, tracked: Tracked) -> None:
        """Ask for a shim for each worker that has none. A run that has begun to end is not completed."""
        sight = await self._look(tracked.roster)
        if sight.stop_s is not None or any(seen.exit or seen.stage in OVER for seen in sight.workers):
            return
        absent = {seen.rank for seen in sight.workers if seen.stage is Stage.ABSENT}
        tracked.asked_s = self._clock.monotonic_s()
        await _all_of(
            self._start(tracked, place, [rank for rank in ranks if rank in absent])
            for place, ranks in self._by_place(tracked.roster)
        )
        tracked.asked += 1

    async def _start(self, tracked: Tracked, place: Place, ranks: Sequence[int]) -> None:
        if not ranks:
            return
        try:
            await self._reach(place.transport.start(tracked.roster.run, [tracked.requests[rank] for rank in ranks]))
        except OSError as error:
            tracked.begun = tracked.begun or isinstance(error, Unreachable)
            raise
        tracked.begun = True

    # ---- watching ----

    def _hint(self, run: RunId) -> None:
        if (tracked := self._tracked.get(run)) is not None:
            for place, _ in self._by_place(tracked.roster):
                place.dirty[run] = None
                place.wake.set()

    async def _watch(self, place: Place) -> None:
        poll_s = inventory_s = self._clock.monotonic_s()
        while True:
            now_s = self._clock.monotonic_s()
            if now_s >= inventory_s and place is self._here:
                await self._safely(self._take_inventory())
                inventory_s = now_s + self._tuning.inventory_s
            if now_s >= poll_s:
                place.dirty.update(dict.fromkeys(self._tracked))
                poll_s = now_s + self._tuning.poll_s
            runs, place.dirty = list(place.dirty), {}
            await self._safely(self._inspect(place, runs))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(place.wake.wait(), max(0.0, poll_s - self._clock.monotonic_s()))
            place.wake.clear()

    async def _safely(self, work: Awaitable[None]) -> None:
        """Whatever goes wrong with one look (no file descriptors left, a driver that hangs up), the next one comes."""
        try:
            await work
        except Unreachable as error:
            log.warning("a machine does not answer (%s); looking again in %s s", error, self._tuning.poll_s)
        except Exception:
            log.exception("looking at runs failed; looking again in %s s", self._tuning.poll_s)

    async def _inspect(self, place: Place, runs: Sequence[RunId]) -> None:
        """Look at those runs of this machine that nobody is changing, and judge those seen at all their machines."""
        found = [tracked for run in runs if (tracked := self._tracked.get(run)) and not tracked.lock.locked()]
        here = {t.roster.run: ranks for t in found for at, ranks in self._by_place(t.roster) if at is place}
        looks = await self._reach(place.transport.look(here)) if here else {}
        now_s = self._clock.now_s()
        for run, look in looks.items():
            tracked = self._tracked.get(run)
            if tracked is None or tracked.lock.locked():
                continue
            tracked.sights[place.name] = sight_from_json([look], now_s)
            async with tracked.judging:
                seen = all(at.name in tracked.sights for at, _ in self._by_place(tracked.roster))
                if seen and self._tracked.get(run) is tracked:
                    await self._judge(tracked, together(list(tracked.sights.values())))

    async def _judge(self, tracked: Tracked, sight: Sight) -> None:
        run, now_s = tracked.roster.run, self._clock.now_s()
        tracked.sight = sight
        if sight.untouched and not tracked.untouched:
            self._tracked.pop(run, None)  # adopted, but never wholly started: it is for the daemon to launch it
            return
        if sight.up_s is not None and not tracked.up_told:
            tracked.up_told, tracked.up_s = True, sight.up_s
            self._told.put_nowait(RunUp(run=run, at_s=sight.up_s))
        gone = verdict(tracked.roster, sight, now_s)
        self._tell_progress(tracked, sight.epochs, over=gone is not None)
        if gone is None:
            gone = await self._tend(tracked, sight)
        elif tracked.failed:
            gone = replace(gone, reason=ExitReason.NODE_FULL, message=tracked.failed)
        if gone is not None:
            del self._tracked[run]
            # Each look converts the node's clock anew, which is exact to milliseconds only.
            await self._tell_gone(tracked.roster, replace(gone, at_s=max(gone.at_s, tracked.up_s)))

    def _tell_progress(self, tracked: Tracked, epochs: Epochs | None, *, over: bool) -> None:
        """At the first look and the last; in between only if the training's own report is late."""
        now_s, first = self._clock.monotonic_s(), not tracked.looked
        tracked.looked = True
        if epochs is None:
            return
        if tracked.epochs is None or (epochs.done, epochs.total) != (tracked.epochs.done, tracked.epochs.total):
            tracked.epochs, tracked.epochs_s, tracked.epochs_told = epochs, now_s, False
        late = now_s >= tracked.epochs_s + self._tuning.report_s
        if tracked.epochs_told or not (first or over or late):
            return
        tracked.epochs_told = True
        self._told.put_nowait(
            RunProgress(
                run=tracked.roster.run,
                resumed=epochs.resumed,
                epochs=epochs.done,
                total=epochs.total,
                began_s=epochs.began_s,
                at_s=epochs.at_s,
            )
        )

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

    async def _tend(self, tracked: Tracked, sight: Sight) -> RunGone | None:
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
            if not fenced and tracked.withdrawn:  # a full disk: no fence can be written, and none is needed
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

    async def _force(self, tracked: Tracked, now_s: float) -> None:
        """Its shims have not killed their workers, though they were asked: somebody has stopped or blocked them."""
        tracked.kill_s = now_s
        log.warning("run %s was to be killed and is not over; killing all that belongs to it", tracked.roster.run)
        with contextlib.suppress(Unreachable):  # it is forced again later
            await _all_of(
                self._reach(place.transport.force(tracked.roster.run, ranks))
                for place, ranks in self._by_place(tracked.roster)
            )
        self._hint(tracked.roster.run)

    def _patience_s(self, tracked: Tracked, reason: ExitReason) -> float:
        """How long the others may take to end by themselves."""
        if reason in (ExitReason.START_FAILED, ExitReason.FINISHED):  # nothing to wait for; only servers are left
            return 0.0
        return tracked.roster.grace_s if reason is ExitReason.STOPPED else self._tuning.straggler_s

    async def _ask_again(self, tracked: Tracked, now_s: float) -> None:
        """The nursery may have died with our request. Asking twice is harmless: there is one claim."""
        if not tracked.requests or now_s < tracked.asked_s + self._tuning.ask_again_s:
            return
        if tracked.asked >= self._tuning.ask_times:
            tracked.failed = "the process that holds a job did not start; the machine may be out of memory or processes"
            return
        try:
            await self._start_absent(tracked)
        except Unreachable as error:
            log.warning("run %s: %s; asking again", tracked.roster.run, error)
        except OSError as error:
            tracked.could_not("started", error)

    async def _stop(self, tracked: Tracked, workers: Sequence[Seen], *, kill: bool) -> bool:
        ranks = {seen.rank for seen in workers}
        try:
            await _all_of(
                self._reach(place.transport.stop(tracked.roster.run, chosen, kill=kill, whole=False))
                for place, here in self._by_place(tracked.roster)
                if (chosen := [rank for rank in here if rank in ranks])
            )
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


async def _all_of(calls: Iterable[Awaitable[_T]]) -> list[_T]:
    """All of them, side by side, to their end; then what they gave. A refusal weighs more than no answer."""
    found = await asyncio.gather(*calls, return_exceptions=True)
    errors = [error for error in found if isinstance(error, BaseException)]
    if errors:
        raise min(errors, key=lambda error: isinstance(error, Unreachable))
    return [item for item in found if not isinstance(item, BaseException)]


def _refused(error: Exception) -> Refused:
    return Refused(why=str(error), errno=error.errno if isinstance(error, OSError) else None)


def _request(launch: Launch, worker: Worker) -> dict[str, Any]:
    return {
        "run": str(launch.run),
        "rank": worker.rank,
        "argv": list(worker.argv),
        "env": dict(worker.env),
        "shell_env": worker.shell_env,
        "path_first": list(worker.path_first),
        "cwd": worker.cwd,
        "grace_s": launch.grace_s,
        "secrets": list(launch.secrets),
    }


def local_executor(
    runs_dir: Path,
    clock: Clock,
    prepare: Callable[[Order], Launch],
    *,
    job_dirs: Sequence[Path] = (),
    machine: Machine | None = None,
    tuning: Tuning | None = None,
) -> HostExecutor:
    """Everything on this machine. `job_dirs` each hold a directory a job, which goes when the job is removed."""
    return HostExecutor(LocalTransport(runs_dir, job_dirs), clock, prepare, machine=machine, tuning=tuning)
