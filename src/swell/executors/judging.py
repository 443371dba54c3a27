"""Acts on what was observed of runs: reports them as up or gone, starts missing workers, stops a gang after a failure.

`hosts` calls it with each look. `verdict` decides what the facts mean.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

from swell.core.events import ExitReason
from swell.core.observations import GpusMeasured, NodeSeen, RunFetching, RunGone, RunProgress, RunUp
from swell.executors.places import Floor, Place, all_of
from swell.executors.tracking import Tracked
from swell.executors.transport import Unreachable
from swell.executors.verdict import (
    OVER,
    Epochs,
    Roster,
    Seen,
    Sight,
    Stage,
    breaks_gang,
    ends_of,
    sight_from_json,
    verdict,
)

log = logging.getLogger(__name__)


class Judge:
    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._clock = floor.clock
        self.tasks: dict[asyncio.Task[None], None] = {}

    async def judge(self, tracked: Tracked, sight: Sight, *, in_turn: bool = False) -> None:
        """Handle a look at all machines of a run. `in_turn`: report its end before returning, if possible."""
        run, now_s = tracked.roster.run, self._clock.now_s()
        if sight.untouched and not tracked.untouched:
            self._floor.tracked.pop(run, None)  # adopted, but not all workers were started: the daemon launches it
            return
        if sight.up_s is None:  # once it is up, nothing is fetched any more
            self._tell_preparing(tracked, sight.preparing)
        elif not tracked.up_told:
            tracked.up_told, tracked.up_s = True, sight.up_s
            self._floor.tell(RunUp(run=run, at_s=sight.up_s))
        gone = verdict(tracked.roster, sight, now_s)
        self._tell_progress(tracked, sight.epochs, over=gone is not None)
        if gone is None:
            gone = await self._tend(tracked, sight)
        elif tracked.failed:
            gone = replace(gone, reason=ExitReason.NODE_FULL, message=tracked.failed)
        if gone is not None:
            del self._floor.tracked[run]
            # Each look converts the node's clock again, with an error of milliseconds.
            await self._tell_gone(tracked.roster, replace(gone, at_s=max(gone.at_s, tracked.up_s)), in_turn=in_turn)

    def _tell_preparing(self, tracked: Tracked, detail: str) -> None:
        (told, at_s), now_s = tracked.preparing, self._clock.monotonic_s()
        if detail == told or (detail and told and now_s < at_s + self._floor.tuning.preparing_s):
            return
        tracked.preparing = (detail, now_s)
        self._floor.tell(RunFetching(run=tracked.roster.run, at_s=self._clock.now_s(), detail=detail))

    def _tell_progress(self, tracked: Tracked, epochs: Epochs | None, *, over: bool) -> None:
        """At the first look and the last; in between only if the training's own report is late."""
        now_s, first = self._clock.monotonic_s(), not tracked.looked
        tracked.looked = True
        if epochs is None:
            return
        if tracked.epochs is None or (epochs.done, epochs.total) != (tracked.epochs.done, tracked.epochs.total):
            tracked.epochs, tracked.epochs_s, tracked.epochs_told = epochs, now_s, False
        late = now_s >= tracked.epochs_s + self._floor.tuning.report_s
        if tracked.epochs_told or not (first or over or late):
            return
        tracked.epochs_told = True
        self._floor.tell(
            RunProgress(
                run=tracked.roster.run,
                resumed=epochs.resumed,
                epochs=epochs.done,
                total=epochs.total,
                began_s=epochs.began_s,
                at_s=epochs.at_s,
                unit=epochs.unit,
            )
        )

    # ---- its end ----

    async def _tell_gone(self, roster: Roster, gone: RunGone, *, in_turn: bool) -> None:
        """Report a GPU that is not clean before the end of its run frees it. A task does it, because a query of the
        driver takes a while and must not delay other reports."""
        with contextlib.suppress(OSError):  # the task tries again
            if in_turn and await self._clean(roster):
                self._floor.tell(gone)
                return
        task = asyncio.create_task(self._tell_when_clean(roster, gone))
        self.tasks[task] = None
        task.add_done_callback(self.tasks.pop)

    async def _tell_when_clean(self, roster: Roster, gone: RunGone) -> None:
        give_up_s = self._clock.monotonic_s() + self._floor.tuning.clean_s
        try:
            while not await self._clean(roster):
                if self._clock.monotonic_s() >= give_up_s:
                    for place, _ in self._floor.by_place(roster):
                        await self.take_inventory(place)
                    break
                await asyncio.sleep(0.1)
        except OSError as error:  # the run has ended, whatever the state of its GPUs
            log.info("run %s: its GPUs could not be looked at after its end: %s", roster.run, error)
        self._floor.tell(gone)

    async def _clean(self, roster: Roster) -> bool:
        for place, _ in self._floor.by_place(roster):
            gpus, machine = self._floor.gpus_of(roster, place), place.machine
            if machine is not None and gpus and not await machine.clean(gpus, self._floor.ours(place)):
                return False
        return True

    async def take_inventory(self, place: Place) -> None:
        if place.machine is None:
            return
        node = await place.machine.read(self._floor.ours(place))
        if node != place.seen:
            place.seen = node
            self._floor.tell(NodeSeen(node=node, at_s=self._clock.now_s()))
        if use := place.machine.use():
            self._floor.tell(GpusMeasured(node=node.name, use=use, at_s=self._clock.now_s()))

    # ---- keeping it whole ----

    async def _tend(self, tracked: Tracked, sight: Sight) -> RunGone | None:
        """Keep the gang complete: start missing workers, or stop the others after one has failed."""
        run, now_s = tracked.roster.run, self._clock.monotonic_s()
        if tracked.kill_s is not None and now_s >= tracked.kill_s + self._floor.tuning.force_s:
            await self._force(tracked, now_s)
        absent = [seen for seen in sight.workers if seen.stage is Stage.ABSENT]
        breaker = breaks_gang(tracked.roster, ends_of(tracked.roster, sight, self._clock.now_s()))
        if absent and not (tracked.failed or breaker or sight.stop_s is not None):
            await self._ask_again(tracked, now_s)
        if absent and (tracked.failed or breaker or sight.stop_s is not None):
            fenced = await self._stop(tracked, absent, kill=True)
            if not fenced and tracked.withdrawn:  # the disk is full: no fence can be written, and none is needed
                return RunGone(run=run, reason=ExitReason.NODE_FULL, at_s=self._clock.now_s(), message=tracked.failed)
        if breaker or tracked.failed:
            reason = breaker.reason if breaker else ExitReason.START_FAILED
            await self._stop_the_rest(tracked, sight, reason, now_s)
        return None

    async def _stop_the_rest(self, tracked: Tracked, sight: Sight, reason: ExitReason, now_s: float) -> None:
        tracked.broken_s = now_s if tracked.broken_s is None else tracked.broken_s
        at_once = bool(tracked.failed) or reason is ExitReason.START_FAILED
        if tracked.told_rest or now_s < tracked.broken_s + self._patience_s(tracked, reason):
            return
        rest = [seen for seen in sight.workers if seen.stage in (Stage.STARTING, Stage.UP)]
        tracked.told_rest = await self._stop(tracked, rest, kill=at_once)
        tracked.kill_s = now_s if at_once and tracked.kill_s is None else tracked.kill_s

    async def _force(self, tracked: Tracked, now_s: float) -> None:
        """Kill the workers directly: their shims were asked to, but are suspended or blocked."""
        tracked.kill_s = now_s
        log.warning("run %s was to be killed and is not over; killing all that belongs to it", tracked.roster.run)
        with contextlib.suppress(Unreachable):  # it is forced again later
            await all_of(
                self._floor.reach(place.transport.force(tracked.roster.run, ranks))
                for place, ranks in self._floor.by_place(tracked.roster)
            )
        self._floor.hint(tracked.roster.run)

    def _patience_s(self, tracked: Tracked, reason: ExitReason) -> float:
        """How long the other workers may take to end by themselves."""
        if reason in (ExitReason.START_FAILED, ExitReason.FINISHED):  # nothing to wait for; only servers are left
            return 0.0
        return tracked.roster.grace_s if reason is ExitReason.STOPPED else self._floor.tuning.straggler_s

    async def _ask_again(self, tracked: Tracked, now_s: float) -> None:
        """Request missing workers again: the nursery may have died with the request. It is harmless, because a worker
        can be claimed only once."""
        if not tracked.requests or now_s < tracked.asked_s + self._floor.tuning.ask_again_s:
            return
        if tracked.asked >= self._floor.tuning.ask_times:
            tracked.failed = "the process that holds a job did not start; the machine may be out of memory or processes"
            return
        try:
            await self.start_absent(tracked)
        except Unreachable as error:
            log.warning("run %s: %s; asking again", tracked.roster.run, error)
        except OSError as error:
            tracked.could_not("started", error)

    async def _stop(self, tracked: Tracked, workers: Sequence[Seen], *, kill: bool) -> bool:
        ranks = {seen.rank for seen in workers}
        try:
            await all_of(
                self._floor.reach(place.transport.stop(tracked.roster.run, chosen, kill=kill, whole=False))
                for place, here in self._floor.by_place(tracked.roster)
                if (chosen := [rank for rank in here if rank in ranks])
            )
        except OSError:
            return False
        self._floor.hint(tracked.roster.run)
        return True

    # ---- starting ----

    async def look(self, roster: Roster) -> Sight:
        """Look at all machines of a run concurrently."""
        run = roster.run
        looks = await all_of(
            self._floor.reach(place.transport.look({run: ranks})) for place, ranks in self._floor.by_place(roster)
        )
        return sight_from_json([look.runs[run] for look in looks], self._clock.now_s())

    async def start_absent(self, tracked: Tracked) -> None:
        """Request a shim for each worker that has none, unless the run has begun to end."""
        sight = await self.look(tracked.roster)
        if sight.stop_s is not None or any(seen.exit or seen.stage in OVER for seen in sight.workers):
            return
        await self.start(tracked, {seen.rank for seen in sight.workers if seen.stage is Stage.ABSENT})

    async def start(self, tracked: Tracked, absent: Collection[int]) -> None:
        """Request a shim for each of these ranks."""
        tracked.asked_s = self._clock.monotonic_s()
        await all_of(
            self._start(tracked, place, [rank for rank in ranks if rank in absent])
            for place, ranks in self._floor.by_place(tracked.roster)
        )
        tracked.asked += 1

    async def _start(self, tracked: Tracked, place: Place, ranks: Sequence[int]) -> None:
        if not ranks:
            return
        requests = [tracked.requests[rank] for rank in ranks]
        try:
            await self._floor.reach(place.transport.start(tracked.roster.run, requests))
        except OSError as error:
            tracked.begun = tracked.begun or isinstance(error, Unreachable)
            raise
        tracked.begun = True
