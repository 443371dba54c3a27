"""The executor of machines with shims: the daemon's own machine, and machines that another transport reaches.

Every run has a directory on each of its nodes. The directories are authoritative and this object only reads them, so
that a later one can take over. Hints of shims make it fast (milliseconds), polling makes it reliable. One task per
machine watches it, and renews its leases if it has some; `judging` acts on what was observed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from swell.checkpoints.carrying import Carrier, Target
from swell.core.contact import lease_until_s
from swell.core.ids import JobId, RunId
from swell.core.observations import Adopted, CheckpointKept, FilesFound, NodeHeard, Observation
from swell.core.resources import Node
from swell.core.state import JobRecord
from swell.executors.answers import answer_of, refused
from swell.executors.carriage import Carriage
from swell.executors.judging import Judge
from swell.executors.launchers import following
from swell.executors.places import Floor, Place, all_of
from swell.executors.request import LaunchContext
from swell.executors.tracking import Tracked, Tuning
from swell.executors.transport import LocalTransport, Look, Unreachable
from swell.executors.verdict import Roster, roster_from_json, roster_of, sight_from_json, together
from swell.ports import Answer, Clock, Done, JobTree, Launch, LogChunk, Order, Piece, Unknown, Worker

log = logging.getLogger(__name__)
Prepare = Callable[[Order], Awaitable[Launch]]


async def _always() -> bool:
    return True


class HostExecutor:
    """See `ports.Executor`. `kept`: keeps the roster of each run on the daemon's side. `here`: the machine of all nodes
    without a place of their own (the router has checked their kind); None: there is none. `prepare`: turns an order
    into a launch. `still_ours`: whether this daemon may still renew leases."""

    def __init__(
        self,
        kept: LocalTransport,
        clock: Clock,
        prepare: Prepare,
        *,
        here: Place | None,
        places: Sequence[Place] = (),
        tuning: Tuning | None = None,
        still_ours: Callable[[], Awaitable[bool]] = _always,
        carrier: Carrier | None = None,
        context_of: Callable[[str], LaunchContext] | None = None,
    ) -> None:
        self._kept = kept
        self._clock = clock
        self._prepare = prepare
        self._floor = Floor(clock, tuning or Tuning(), here)
        self._judge = Judge(self._floor)
        self._carriage = Carriage(carrier, self._floor, context_of) if carrier and context_of else None
        self._still_ours = still_ours
        self._observing = False
        self._waived = False
        for place in places:
            self.join(place)

    # ---- machines come and go ----

    def place(self, name: str) -> Place:
        """Raises Unreachable if there is no such machine."""
        return self._floor.place(name)

    def join(self, place: Place) -> None:
        """Watch this machine from now on; it replaces one of the same name."""
        self.leave(place.name)
        self._floor.others[place.name] = place
        if self._observing:
            self._begin_watch(place)

    def leave(self, name: str) -> None:
        """Stop watching a machine. Its runs continue."""
        place = self._floor.others.pop(name, None)
        if place is not None:
            if place.watch is not None:
                place.watch.cancel()
            place.transport.close()

    async def waive(self) -> None:
        """Before a planned stop of the daemon: runs on reachable machines may continue without a time limit."""
        self._waived = True
        leased = [place for place in self._floor.places() if place.lease_s and place.boot_id]
        calls = (self._floor.reach(place.transport.renew(place.boot_id, None)) for place in leased)
        for place, end in zip(leased, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(end, BaseException):
                log.warning("%s was not told that it may go on without the daemon: %s", place.name, end)

    # ---- the port ----

    async def launch(self, order: Order) -> Answer:
        try:
            before = await self._asked_before(order.run)
            if before is not None and await self._has_begun(before):
                return Done()
            await self._check_boots(order.nodes)
            for name in order.nodes:
                self._floor.place(name).transport.promise(order.run)
            launch = await self._prepared_with_checkpoint(order)
        except Unreachable as error:
            return Unknown(why=str(error))
        except Exception as error:
            return refused(error)
        tracked = self._floor.tracked.setdefault(launch.run, Tracked(roster=roster_of(launch)))
        async with tracked.lock:
            tracked.requests = {worker.rank: _request(launch, worker) for worker in launch.workers}
            tracked.untouched = True
            answer = await self._begin(tracked, launch, asked_before=before is not None)
        self._floor.hint(launch.run)
        return answer

    async def _prepared_with_checkpoint(self, order: Order) -> Launch:
        """Prepare the job's directories, then bring its checkpoint there, then prepare again if that changed the order:
        the environment of its processes depends on the checkpoint."""
        launch = await self._prepare(order)
        brought = await self._carriage.brought(order) if self._carriage is not None else order
        return launch if brought is order else await self._prepare(brought)

    async def _check_boots(self, nodes: Mapping[str, Node]) -> None:
        """Raise Unreachable if a machine was rebooted since its run was planned."""
        for name, node in nodes.items():
            place = self._floor.place(name)
            if place.lease_s and not place.boot_id:
                await self._heard(place, await self._floor.reach(place.transport.look({})))
            if node.boot_id and place.boot_id != node.boot_id:
                raise Unreachable(f"{name} was booted again")

    async def _begin(self, tracked: Tracked, launch: Launch, *, asked_before: bool) -> Answer:
        """Write the roster, then request the workers: no worker exists without a roster. If a machine refuses, that is
        reported as an observation once nothing of the run is left anywhere."""
        try:
            roster = json.dumps(tracked.roster.to_json()).encode()
            await self._floor.reach(self._kept.put(launch.run, "launch.json", roster))
            await self._put_discovery(launch, launch.workers[0].node)
            if asked_before:
                await self._judge.start_absent(tracked)
            else:
                await self._judge.start(tracked, {worker.rank for worker in launch.workers})
        except Unreachable as error:
            return Unknown(why=str(error))
        except OSError as error:
            tracked.could_not("prepared", error)
        return Done()

    async def _put_discovery(self, launch: Launch, first: str) -> None:
        """Write the host discovery script to the first machine, where the launcher runs it."""
        if launch.discovery:
            put = self._floor.place(first).transport.put(launch.run, "discovery", launch.discovery.encode())
            await self._floor.reach(put)

    async def resize(self, order: Order) -> Answer:
        """A run that cannot be resized in place is stopped instead; its next attempt gets the new allocation."""
        return await answer_of(self._resize(order), refusals=Exception)

    async def _resize(self, order: Order) -> None:
        launch, roster = await self._prepare(order), await self._roster(order.run)
        if roster is None or not launch.discovery:
            return
        first = roster.members[0]  # horovodrun, which runs the host discovery script
        before = await self._floor.reach(self._floor.place(first.node).transport.get(launch.run, "discovery")) or b""
        devices = any(gpu.uuid for node in order.nodes.values() for gpu in node.gpus)
        script = following(before.decode(), launch.discovery, devices=devices) if first.node in order.nodes else ""
        if not script:
            await self._stop(launch.run, kill=False)
            return
        if launch.workers[0].node == first.node:
            await self._note_gpus(roster, launch.workers[0].gpus)
        await self._put_discovery(replace(launch, discovery=script), first.node)

    async def _note_gpus(self, roster: Roster, gpus: tuple[int, ...]) -> None:
        """Note the GPUs of the first worker, which are checked when the run has ended."""
        roster = replace(roster, members=(replace(roster.members[0], gpus=gpus), *roster.members[1:]))
        await self._floor.reach(self._kept.put(roster.run, "launch.json", json.dumps(roster.to_json()).encode()))
        if (tracked := self._floor.tracked.get(roster.run)) is not None:
            tracked.roster = roster

    async def signal(self, run: RunId, *, kill: bool) -> Answer:
        try:
            return await answer_of(self._stop(run, kill=kill))
        finally:
            self._floor.hint(run)

    async def _stop(self, run: RunId, *, kill: bool) -> None:
        tracked = self._floor.tracked.get(run) or await self._take_over(run)
        if tracked is None:
            await self._stop_unknown(run, kill=kill)
            return
        async with tracked.lock:
            await all_of(
                self._floor.reach(place.transport.stop(run, ranks, kill=kill, whole=True))
                for place, ranks in self._floor.by_place(tracked.roster)
            )
            if kill:
                tracked.kill_s = self._clock.monotonic_s()

    async def _stop_unknown(self, run: RunId, *, kill: bool) -> None:
        """Stop a run that a machine has reported but that has no roster here."""
        await all_of(
            self._floor.reach(place.transport.stop(run, place.running[run], kill=kill, whole=True))
            for place in self._floor.places()
            if run in place.running
        )

    async def observe(self, known: Sequence[RunId]) -> AsyncIterator[Observation]:
        self._observing, here = True, self._floor.here
        try:
            for run in known:
                await self._safely(self._adopt(run))
            if here is not None:
                here.transport.listen(self._floor.hint)
                await self._safely(self._tell_files(here))
                await self._safely(self._inspect(here, list(self._floor.tracked)))
            if known:
                self._floor.tell(Adopted())
            for place in self._floor.places():
                self._begin_watch(place)
            while True:
                yield await self._floor.told()
        finally:
            self._observing = False
            watches = [place.watch for place in self._floor.places() if place.watch is not None]
            await _cancel([*watches, *self._judge.tasks])
            for place in self._floor.places():
                place.watch = None
                place.transport.close()

    async def log(self, run: RunId, rank: int, offset: int, limit: int) -> LogChunk:
        place = await self._place_of(run, rank)
        if place is None:
            return LogChunk(data=b"", offset=offset, next_offset=offset, end=False)
        return await self._floor.reach(place.transport.read_log(run, rank, offset, limit))

    async def log_since(self, run: RunId, rank: int, age_s: float) -> int:
        place = await self._place_of(run, rank)
        return await self._floor.reach(place.transport.log_since(run, rank, age_s)) if place else 0

    async def _place_of(self, run: RunId, rank: int) -> Place | None:
        """The machine of this process of the run; the daemon's own machine if unknown."""
        roster = await self._roster(run)
        nodes = {member.rank: member.node for member in roster.members} if roster else {}
        if self._floor.here is None and rank not in nodes:
            return None
        return self._floor.place(nodes.get(rank, ""))

    async def remove(self, job: JobId) -> Answer:
        if any(run.job == job for run in self._floor.tracked):
            return Done()
        return await answer_of(self._remove_everywhere(job))

    async def _remove_everywhere(self, job: JobId) -> None:
        await all_of(self._floor.reach(place.transport.remove(job)) for place in self._floor.places())
        await self._floor.reach(self._kept.remove(job))

    # ---- the port `Files` ----

    async def tree(self, order: Order) -> JobTree:
        place, record = self._floor.place(next(iter(order.nodes))), order.record
        return await self._floor.reach(place.transport.tree(record.id, record.spec.workdir))

    async def content(self, order: Order, path: str, offset: int, limit: int) -> Piece:
        place, record = self._floor.place(next(iter(order.nodes))), order.record
        return await self._floor.reach(place.transport.read(record.id, record.spec.workdir, path, offset, limit))

    # ---- the port `Checkpoints` ----

    async def copy(self, order: Order, others: Mapping[str, Node]) -> CheckpointKept | None:
        return None if self._carriage is None else await self._carriage.copy(order, others)

    async def copied_jobs(self) -> Sequence[JobId]:
        return [] if self._carriage is None else await self._carriage.carrier.jobs()

    async def forget_copy(self, job: JobId) -> None:
        if self._carriage is not None:
            await self._carriage.carrier.forget(job)

    def checkpoint_at(self, record: JobRecord, node: str) -> Target | None:
        """A machine of this executor as the holder of a job's checkpoint."""
        return None if self._carriage is None else self._carriage.target(record, node)

    # ---- runs ----

    async def _roster(self, run: RunId) -> Roster | None:
        tracked = self._floor.tracked.get(run)
        if tracked is not None:
            return tracked.roster
        data = await self._floor.reach(self._kept.get(run, "launch.json"))
        try:
            return roster_from_json(json.loads(data)) if data else None
        except (ValueError, KeyError):
            return None  # truncated by a power failure: it is launched again, and claims prevent a second start

    async def _adopt(self, run: RunId) -> None:
        """Track a run that another process launched, unless not all its workers were started: then it is launched
        again. Its machines may be unreachable now; their watches find it when they are back."""
        roster = await self._roster(run)
        if (tracked := self._floor.tracked.get(run)) is not None:
            tracked.up_told = tracked.looked = False
            tracked.epochs_told = tracked.epochs is None
        elif roster is not None:
            now_s = self._clock.monotonic_s()
            before = ("unknown", 0.0)  # the preparation that an earlier process reported
            self._floor.tracked[run] = Tracked(roster=roster, untouched=False, asked_s=now_s, preparing=before)

    async def _asked_before(self, run: RunId) -> Roster | None:
        """The roster of an earlier launch of the same run, also by another process. An error here or in `_has_begun`
        raises Unreachable, because the run may be alive."""
        try:
            return await self._roster(run)
        except OSError as error:
            raise Unreachable(str(error)) from error

    async def _has_begun(self, roster: Roster) -> bool:
        """Whether all its workers were started, so that there is nothing to prepare."""
        try:
            if (await self._judge.look(roster)).untouched:
                return False
        except OSError as error:
            raise Unreachable(str(error)) from error
        self._track(roster)
        self._floor.hint(roster.run)
        return True

    async def _take_over(self, run: RunId) -> Tracked | None:
        """Track a run that another process launched, in order to stop it; None: it is unknown or has ended."""
        roster = await self._roster(run)
        return None if roster is None or (await self._judge.look(roster)).over else self._track(roster)

    def _track(self, roster: Roster) -> Tracked:
        tracked = Tracked(roster=roster, asked_s=self._clock.monotonic_s())
        return self._floor.tracked.setdefault(roster.run, tracked)

    # ---- watching ----

    def _begin_watch(self, place: Place) -> None:
        if place is not self._floor.here:
            place.transport.listen(self._floor.hint)
        place.watch = asyncio.create_task(self._watch(place))

    async def _watch(self, place: Place) -> None:
        tuning = self._floor.tuning
        poll_s = inventory_s = self._clock.monotonic_s()
        while True:
            now_s = self._clock.monotonic_s()
            polled = now_s >= poll_s
            if polled:
                place.dirty.update(dict.fromkeys(self._floor.tracked))
                poll_s = now_s + tuning.poll_s
            runs, place.dirty = list(place.dirty), {}
            await self._safely(self._inspect(place, runs, renewing=polled), place)
            if now_s >= inventory_s and (place.boot_id or not place.lease_s):
                await self._safely(self._judge.take_inventory(place), place)
                inventory_s = now_s + tuning.inventory_s
            with contextlib.suppress(TimeoutError):  # not `wait_for`: before Python 3.12 it may swallow a cancellation
                async with asyncio.timeout(max(0.0, poll_s - self._clock.monotonic_s())):
                    await place.wake.wait()
            place.wake.clear()

    async def _safely(self, work: Awaitable[None], place: Place | None = None) -> None:
        """Log any error of one look (no file descriptors left, a driver that fails), so that the next look follows."""
        name = (place.name if place else "") or "a machine"
        try:
            await work
        except Unreachable as error:
            log.info("%s does not answer (%s); looking again in %s s", name, error, self._floor.tuning.poll_s)
        except Exception:
            log.exception("looking at %s failed; looking again in %s s", name, self._floor.tuning.poll_s)

    async def _inspect(self, place: Place, runs: Sequence[RunId], *, renewing: bool = False) -> None:
        """Look at the runs of this machine that no command is changing, and judge those seen at all their machines."""
        found = [tracked for run in runs if (tracked := self._floor.tracked.get(run)) and not tracked.lock.locked()]
        here = {t.roster.run: ranks for t in found if (ranks := self._ranks_at(t.roster, place))}
        if not here and not (renewing and place.lease_s):
            return
        look = await self._floor.reach(place.transport.look(here))
        well = {run: seen for run, seen in look.runs.items() if _ended_well(seen)}
        # First the runs that finished: if the machine was rebooted, `_heard` reports all others there as lost.
        await self._see(place, well, in_turn=bool(place.lease_s) and look.boot_id != place.boot_id)
        if renewing and place.lease_s:
            await self._heard(place, look)
        await self._see(place, {run: seen for run, seen in look.runs.items() if run not in well})

    async def _see(self, place: Place, looks: Mapping[RunId, Mapping[str, Any]], *, in_turn: bool = False) -> None:
        now_s = self._clock.now_s()
        for run, seen in looks.items():
            tracked = self._floor.tracked.get(run)
            if tracked is None or tracked.lock.locked():
                continue
            tracked.sights[place.name] = sight_from_json([seen], now_s)
            async with tracked.judging:
                if self._floor.tracked.get(run) is tracked and self._seen_everywhere(tracked):
                    await self._judge.judge(tracked, together(list(tracked.sights.values())), in_turn=in_turn)

    def _ranks_at(self, roster: Roster, place: Place) -> list[int]:
        others = self._floor.others
        return [m.rank for m in roster.members if others.get(m.node, self._floor.here) is place]

    def _seen_everywhere(self, tracked: Tracked) -> bool:
        with contextlib.suppress(Unreachable):  # one of its machines was removed
            return all(at.name in tracked.sights for at, _ in self._floor.by_place(tracked.roster))
        return False

    async def _heard(self, place: Place, look: Look) -> None:
        """Renew the machine's leases, counted from its own clock at this look, if the database still belongs to this
        daemon. The report comes after the renewal, so that the daemon never counts from an earlier time than the
        machine."""
        first = not place.boot_id
        place.boot_id, place.running = look.boot_id, dict(look.running)
        ours, delivered = not self._waived and await self._still_ours(), False
        if ours:
            until_s = lease_until_s(look.boot_s, place.lease_s)
            with contextlib.suppress(OSError):
                await self._floor.reach(place.transport.renew(look.boot_id, until_s))
                delivered = True
        self._floor.tell(
            NodeHeard(
                node=place.name,
                boot_id=look.boot_id,
                running=tuple(sorted(look.running)),
                at_s=self._clock.now_s(),
                renewed=ours,
                leased=delivered,
            )
        )
        if first:
            await self._tell_files(place)

    async def _tell_files(self, place: Place) -> None:
        self._floor.tell(FilesFound(jobs=tuple(await self._floor.reach(place.transport.kept()))))


def _ended_well(look: Mapping[str, Any]) -> bool:
    exits = [worker["exit"] for worker in look["workers"]]
    return bool(exits) and all(found is not None and found["code"] == 0 for found in exits)


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
        "shell_env": worker.shell_env,
        "path_first": list(worker.path_first),
        "cwd": worker.cwd,
        "user": worker.user,
        "limits": {"cpus": worker.cpus, "memory_mib": worker.memory_mib} if worker.user else {},
        "grace_s": launch.grace_s,
        "secrets": list(launch.secrets),
        "container": dict(worker.container),
    }
